// SPDX-License-Identifier: Apache-2.0
// What every stage does around its main work, in one place: the factor of the gradient, biases in fp32,
// inputs of ignored tokens masked, the reduced loss.
#pragma once

#include "cuda/batch_kernels.h"
#include "cuda/failure.h"
#include "cuda/mixture.h"
#include "cuda/settings.h"
#include "cuda/workspace.h"

namespace fljsd::cuda {

// dlogits are stored as dD/dx times a power of two, so that fp16 does not lose small ones: |dD/dx| <= 1 for
// beta < 1, and 2^15 is the largest power that fp16 holds. At beta = 1 they are bounded by the logits' range
// only, and fp16 needs all of its own.
inline double dlogits_factor(const Settings& s) {
  return s.student.dtype == FLJSD_F16 && s.beta < 1 ? 32768 : 1;
}

// alpha of the gradient products when the divisor is known (1 in place of it otherwise).
inline double gradient_alpha(const Settings& s) {
  const bool known = s.reduction == FLJSD_BATCHMEAN && !s.divisor_on_device();
  const double divisor = known ? static_cast<double>(s.tokens) : 1;
  return 1 / (divisor * s.temperature * dlogits_factor(s));
}

inline Ignored ignored_tokens(const Settings& s, const Call& call, Index first_token = 0) {
  return {s.has_labels ? call.tensors.labels + first_token : nullptr, s.ignore_index};
}

// The per-batch arrays in a workspace.
struct BatchArrays {
  float* token_loss = nullptr;    // [tokens]: the caller's, or ours if the caller wants none
  float* student_bias = nullptr;  // [valid_vocab] as fp32, or null
  float* teacher_bias = nullptr;
  const void* student_input =
      nullptr;  // for the weight gradient: the caller's, or a copy with ignored tokens zeroed
  Index student_input_ld = 0;
  DeviceScalars* scalars = nullptr;
  Factor gradient_factor;  // of the gradient products
};

// The same and the constants 0 and 1, where a product reads them (Scalars). `batch` must live as long.
struct GradientFactors {
  const float *alpha, *zero, *one;
};
inline GradientFactors gradient_factors(const BatchArrays& batch) {
  static constexpr float zero = 0, one = 1;
  const DeviceScalars* scalars = batch.gradient_factor.scalars;
  if (scalars == nullptr) return {&batch.gradient_factor.alpha, &zero, &one};
  return {&scalars->alpha, &scalars->zero, &scalars->one};
}

// Lays the arrays out; with a call, fills them (enqueues that).
inline BatchArrays begin_batch(const Settings& s, fljsd_pass pass, Workspace& workspace, const Call* call) {
  BatchArrays arrays;
  const bool backward = pass == FLJSD_FORWARD_BACKWARD;
  float* own_losses = workspace.take<float>(s.tokens);
  arrays.scalars = workspace.take<DeviceScalars>(1);
  arrays.gradient_factor = {static_cast<float>(gradient_alpha(s)),
                            s.divisor_on_device() ? arrays.scalars : nullptr};
  const Index padded_vocab = round_up(s.valid_vocab, 4);
  if (s.student.bias_dtype != FLJSD_ABSENT) arrays.student_bias = workspace.take<float>(padded_vocab);
  if (s.teacher.bias_dtype != FLJSD_ABSENT) arrays.teacher_bias = workspace.take<float>(padded_vocab);
  const bool mask = backward && s.weight_grad && s.has_labels;
  void* masked = mask ? workspace.take(s.student.dtype, s.tokens * s.student.hidden) : nullptr;
  if (call == nullptr) return arrays;

  const fljsd_tensors& t = call->tensors;
  arrays.token_loss = t.token_loss != nullptr ? t.token_loss : own_losses;
  if (arrays.student_bias != nullptr) {
    launch_to_float(call->stream, t.student_bias, s.student.bias_dtype, s.valid_vocab, arrays.student_bias);
  }
  if (arrays.teacher_bias != nullptr) {
    launch_to_float(call->stream, t.teacher_bias, s.teacher.bias_dtype, s.valid_vocab, arrays.teacher_bias);
  }
  if (backward && s.divisor_on_device()) {
    launch_count(call->stream, ignored_tokens(s, *call), s.tokens, gradient_alpha(s), arrays.scalars);
  }
  arrays.student_input = t.student_input;
  arrays.student_input_ld = s.student.input_ld;
  if (mask) {
    launch_masked_copy(call->stream, t.student_input, s.student.dtype, s.tokens, s.student.hidden,
                       s.student.input_ld, ignored_tokens(s, *call), masked);
    arrays.student_input = masked;
    arrays.student_input_ld = s.student.hidden;
  }
  return arrays;
}

inline void finish_losses(const Settings& s, const Call& call, const float* token_loss) {
  if (call.tensors.loss == nullptr || s.reduction == FLJSD_NONE) return;
  launch_reduce(call.stream, token_loss, ignored_tokens(s, call), s.tokens, s.reduction == FLJSD_BATCHMEAN,
                call.tensors.loss);
}

// What comes after the product of the dlogits of `rows` tokens, from first_token on, and the weight: what
// rounding took from the dlogits, the rounding of the sum, and zeros for tokens that do not count. `sum`:
// where the product is, packed; null if it is where the caller wants it.
inline void finish_input_grad(const Settings& s, const Call& call, const BatchArrays& batch,
                              const ResidualLists& residuals, float* sum, Index first_token, Index rows) {
  const fljsd_tensors& t = call.tensors;
  void* out = at(t.student_input_grad, s.gradient_dtype, first_token * s.input_grad_ld);
  if (wants_residuals(s)) {
    launch_residual_product(call.stream, residuals,
                            {.rows = rows,
                             .columns = s.student.hidden,
                             .weight = t.student_weight,
                             .weight_ld = s.student.weight_ld,
                             .out = sum != nullptr ? sum : static_cast<float*>(out),
                             .out_ld = sum != nullptr ? s.student.hidden : s.input_grad_ld},
                            batch.gradient_factor);
  }
  if (sum != nullptr)
    launch_round(call.stream, sum, rows, s.student.hidden, out, s.gradient_dtype, s.input_grad_ld);
  if (s.has_labels) {
    launch_clear_ignored(call.stream, rows, s.student.hidden, out, s.gradient_dtype, s.input_grad_ld,
                         ignored_tokens(s, call, first_token));
  }
}

// Rows of the weight gradient at or past valid_vocab are 0; bytes between the rows stay.
inline void clear_weight_grad_tail(const Settings& s, const Call& call) {
  if (s.valid_vocab == s.vocab) return;
  const auto size = static_cast<std::size_t>(size_of(s.gradient_dtype));
  check(cudaMemset2DAsync(
            at(call.tensors.student_weight_grad, s.gradient_dtype, s.valid_vocab * s.weight_grad_ld),
            static_cast<std::size_t>(s.weight_grad_ld) * size, 0,
            static_cast<std::size_t>(s.student.hidden) * size,
            static_cast<std::size_t>(s.vocab - s.valid_vocab), call.stream),
        "clearing the weight gradient past valid_vocab");
}

// Of a head to which nothing is added: no token, or no entry that exists. All rows are 0; bytes between them
// stay.
inline void clear_gradients_of_weight(const Settings& s, const Call& call) {
  if (s.weight_grad) {
    const auto size = static_cast<std::size_t>(size_of(s.gradient_dtype));
    check(
        cudaMemset2DAsync(call.tensors.student_weight_grad, static_cast<std::size_t>(s.weight_grad_ld) * size,
                          0, static_cast<std::size_t>(s.student.hidden) * size,
                          static_cast<std::size_t>(s.vocab), call.stream),
        "writing the weight gradient");
  }
  if (s.bias_grad) {
    check(cudaMemsetAsync(call.tensors.student_bias_grad, 0,
                          static_cast<std::size_t>(s.vocab) * sizeof(float), call.stream),
          "writing the bias gradient");
  }
}

}  // namespace fljsd::cuda
