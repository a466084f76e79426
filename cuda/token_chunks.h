// SPDX-License-Identifier: Apache-2.0
// The engine of the stages that store logits: a chunk of tokens at a time, logits by cuBLASLt and the row
// kernel; after each group of chunks, gradients by cuBLASLt through the group's dlogits. The unfused stages
// are the case of one chunk.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cuda/batch.h"
#include "cuda/gemm.h"
#include "cuda/stage.h"

namespace fljsd::cuda {

// Tokens whose logits, and tokens whose dlogits are kept at a time; group is a multiple of chunk, or all.
struct ChunkSizes {
  Index chunk = 1;
  Index group = 1;
};

class TokenChunks final : public Stage {
 public:
  TokenChunks(const Settings& settings, fljsd_dtype logits_dtype, Index forward_chunk,
              const ChunkSizes& backward);

  Index workspace_bytes(fljsd_pass pass) const override;
  void run(fljsd_pass pass, const Call& call) const override;
  void tune(fljsd_pass pass, const Call& call) override;
  std::string describe() const override;

  // Bytes that a pass needs with chunks of this size.
  static Index workspace_bytes(const Settings& settings, fljsd_dtype logits_dtype, fljsd_pass pass,
                               const ChunkSizes& sizes);

 private:
  // The products of one chunk length, and of one group length.
  struct LogitProducts {
    Gemm student, teacher;
    std::string describe() const { return "  " + student.describe() + "\n  " + teacher.describe() + "\n"; }
  };
  struct GradientProducts {
    std::optional<Gemm> input_grad;
    std::optional<Gemm> weight_grad;
  };
  // Of full length, and of the last piece when that is shorter.
  template <class Products>
  struct ByLength {
    Index full_length = 0;
    std::unique_ptr<Products> full, tail;
    Products& of(Index length) const { return length == full_length ? *full : *tail; }
  };
  struct Arrays;
  struct Factors {
    const float *alpha, *zero, *one;
  };

  static Arrays lay_out(const Settings& s, fljsd_dtype logits_dtype, fljsd_pass pass, const ChunkSizes& sizes,
                        Workspace& workspace, const Call* call);
  LogitProducts make_logits(Index rows) const;
  GradientProducts make_gradients(Index rows) const;
  Factors factors(const Arrays& arrays) const;
  void run_logits(const LogitProducts& products, const Call& call, const Arrays& arrays, Index first) const;
  // Gradients of the group of tokens [first, first + rows), whose dlogits are there.
  void run_gradients(const Call& call, const Arrays& arrays, Index first, Index rows) const;

  Settings settings_;
  fljsd_dtype logits_dtype_;
  Divergence kind_;
  Mixture mixture_;
  std::shared_ptr<const LtHandle> lt_;
  ChunkSizes sizes_[2];  // by pass
  ByLength<LogitProducts> logits_[2];
  ByLength<GradientProducts> gradients_;
  float alpha_, zero_ = 0, one_ = 1;
};

}  // namespace fljsd::cuda
