// SPDX-License-Identifier: Apache-2.0
// Matrix products through cuBLASLt, with the choice of algorithm in our hands.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <cublasLt.h>

#include "cuda/settings.h"

namespace fljsd::cuda {

// A cuBLASLt handle for the current device. All that live at once share one, so that a hundred plans that
// are kept do not hold a hundred: it has no state of a product, and any thread may use it.
class LtHandle {
 public:
  LtHandle();
  cublasLtHandle_t get() const { return handle_.get(); }

 private:
  std::shared_ptr<cublasLtContext> handle_;
};

// Where the factors alpha and beta of a product are read from.
enum class Scalars { host, device };

// C[m, n] = alpha · op(A)[m, k] · op(B)[k, n] + beta · C, all row-major; op transposes where it says so, and
// the leading dimension is that of the matrix as stored. A and B have one format. Products are accumulated in
// fp32 at least; fp32 inputs are multiplied in fp32 (no TF32).
struct GemmSpec {
  const char* what = "";  // for messages, e.g. "student logits"
  Index m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  Index lda = 0, ldb = 0, ldc = 0;
  fljsd_dtype in = FLJSD_BF16, out = FLJSD_F32;
  Scalars scalars = Scalars::host;
};

// A product that was planned. The heuristics are asked twice: for operands at multiples of 16 bytes, and for
// operands that are only aligned to their elements; run() looks at the pointers. Sums split over k are
// reduced in fp32 and in a fixed order, so that results are repeatable and rounded once.
class Gemm {
 public:
  // Throws Failure(FLJSD_UNSUPPORTED) when cuBLASLt has no algorithm.
  Gemm(std::shared_ptr<const LtHandle> lt, const GemmSpec& spec);

  struct Operands {
    const void* a;
    const void* b;
    void* c;
    const float* alpha;
    const float* beta;
    void* workspace;  // workspace_size bytes
  };
  static constexpr Index workspace_size = Index{16} << 20;

  void run(cudaStream_t stream, const Operands& operands) const;
  // Runs every candidate for these operands a few times and keeps the fastest of those that run; synchronises
  // the stream. C is overwritten.
  void tune(cudaStream_t stream, const Operands& operands);
  std::string describe() const;

 private:
  struct Candidates {
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    std::size_t chosen = 0;
    float milliseconds = 0;  // 0: not measured
  };
  static std::size_t candidates_for(const Operands& operands);  // index in candidates_
  cublasStatus_t launch(cudaStream_t stream, const Operands& operands,
                        const cublasLtMatmulAlgo_t& algorithm) const;
  void check_launch(cublasStatus_t status) const;  // throws Failure

  struct Descriptors;
  std::shared_ptr<const LtHandle> lt_;
  GemmSpec spec_;
  std::shared_ptr<const Descriptors> descriptors_;
  std::array<Candidates, 2> candidates_;  // [0]: 16-byte aligned, [1]: any
};

}  // namespace fljsd::cuda
