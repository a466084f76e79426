// SPDX-License-Identifier: Apache-2.0
// float64 losses and gradients of bf16 inputs, on the GPU: simple kernels and float64 products, nothing
// shared with the stages. Checked against the CPU reference by verify/tests/gpu/float64_truth_gpu_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

namespace fljsd::bench {

// Device pointers to packed bf16 tensors; one hidden size, no biases, all tokens counted, batchmean, 0 < beta
// < 1.
struct TruthProblem {
  std::int64_t tokens = 0, vocab = 0, hidden = 0;
  const void* student_input = nullptr;
  const void* student_weight = nullptr;
  const void* teacher_input = nullptr;
  const void* teacher_weight = nullptr;
  double beta = 0.5, temperature = 1;
};

// Holds about 8·(3·vocab·hidden + 3·tokens·vocab + 3·tokens·hidden) bytes of device memory.
class Float64Truth {
 public:
  explicit Float64Truth(const TruthProblem& problem);
  ~Float64Truth();
  Float64Truth(const Float64Truth&) = delete;
  Float64Truth& operator=(const Float64Truth&) = delete;

  const std::vector<double>& token_loss() const { return token_loss_; }
  // ‖gradient − truth‖₂/‖truth‖₂ of a packed bf16 gradient on the device; NaN when it holds NaN.
  double input_grad_error(const void* gradient) const;
  double weight_grad_error(const void* gradient) const;
  // The truth itself.
  std::vector<double> input_grad() const;
  std::vector<double> weight_grad() const;

 private:
  TruthProblem problem_;
  std::vector<double> token_loss_;
  double* input_grad_ = nullptr;
  double* weight_grad_ = nullptr;
};

}  // namespace fljsd::bench
