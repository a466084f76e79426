// SPDX-License-Identifier: Apache-2.0
// The products of a pass as cuBLASLt is told of them, for any piece of the tokens and of the vocabulary.
#pragma once

#include "cuda/gemm.h"

namespace fljsd::cuda {

// Leading dimension of `columns` logits, and of their dlogits: rows at multiples of 256 bytes of fp32, 128 of
// bf16.
constexpr Index logits_ld(Index columns) {
  return round_up(columns, 64);
}

// A model's input [rows, hidden] and `columns` rows of its weight.
inline GemmSpec logits_spec(const char* what, const Model& model, Index rows, Index columns,
                            fljsd_dtype out) {
  return {.what = what,
          .m = rows,
          .n = columns,
          .k = model.hidden,
          .transpose_b = true,
          .lda = model.input_ld,
          .ldb = model.weight_ld,
          .ldc = logits_ld(columns),
          .in = model.dtype,
          .out = out};
}

// Where the factor of a gradient product is read.
inline Scalars gradient_scalars(const Settings& s) {
  return s.divisor_on_device() ? Scalars::device : Scalars::host;
}

// Dlogits [rows, columns] and as many rows of the student's weight. `sums`: the result is packed and fp32,
// and rounded later; otherwise it is written as the caller wants it.
inline GemmSpec input_grad_spec(const Settings& s, Index rows, Index columns, bool sums) {
  return {.what = "student input gradient",
          .m = rows,
          .n = s.student.hidden,
          .k = columns,
          .lda = logits_ld(columns),
          .ldb = s.student.weight_ld,
          .ldc = sums ? s.student.hidden : s.input_grad_ld,
          .in = s.student.dtype,
          .out = sums ? FLJSD_F32 : s.gradient_dtype,
          .scalars = gradient_scalars(s)};
}

// The transpose of dlogits [rows, columns] and as many rows of BatchArrays::student_input; `sums` as above.
inline GemmSpec weight_grad_spec(const Settings& s, Index rows, Index columns, bool sums) {
  return {.what = "student weight gradient",
          .m = columns,
          .n = s.student.hidden,
          .k = rows,
          .transpose_a = true,
          .lda = logits_ld(columns),
          .ldb = s.has_labels ? s.student.hidden : s.student.input_ld,
          .ldc = sums ? s.student.hidden : s.weight_grad_ld,
          .in = s.student.dtype,
          .out = sums ? FLJSD_F32 : s.gradient_dtype,
          .scalars = gradient_scalars(s)};
}

}  // namespace fljsd::cuda
