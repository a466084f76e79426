// SPDX-License-Identifier: Apache-2.0
// How far one result is from another: plain distances, before anybody says what is allowed.
//
// Everywhere: NaN against NaN and an infinity against the same infinity are distance 0; every other distance
// that involves NaN or infinity is +inf. So NaN never passes a comparison unless the truth is NaN. Where the
// truth is not finite and matched, the element is left out of norms.
#pragma once

#include <optional>
#include <vector>

#include "reference/linear_jsd.h"

namespace fljsd {

// |result − truth| by the rule above.
double absolute_error(double truth, double result);

struct ScalarError {
  double truth = 0, result = 0;
  double absolute = 0;
  double relative = 0;  // absolute / |truth|; 0 if both are 0, +inf if only truth is
  double ulps = 0;      // absolute / spacing of the result's format at truth
};
// `format` is what the result was stored in; f64 if unknown.
ScalarError scalar_error(double truth, double result, DType format = DType::f64);

// Elementwise errors of a vector: losses per token, or the bias gradient.
struct VectorError {
  std::vector<double> error;  // absolute, one for each element
  double max = 0, median = 0, p99 = 0;
  Index worst = -1;        // element of the largest error; -1 if all are 0
  double relative_l2 = 0;  // ‖result − truth‖₂ / ‖truth‖₂; 0 for 0/0
  double cosine = 0;       // of the angle between result and truth; 1 for two zero vectors
  Index mismatch = -1;     // first element where the truth is NaN or infinite and the result is not the same
};
VectorError vector_error(const std::vector<double>& truth, const std::vector<double>& result);

// Errors of a matrix, row by row.
struct MatrixError {
  std::vector<double> row_error;   // ‖row of result − row of truth‖₂
  std::vector<double> row_truth;   // ‖row of truth‖₂
  double relative_l2 = 0;          // Frobenius norm of the difference over that of the truth; 0 for 0/0
  double max_row_relative_l2 = 0;  // largest row_error / row_truth; 0 for 0/0
  Index worst_row = -1;            // of that quotient; -1 if all are 0
  double absolute_l2 = 0;          // Frobenius norm of the difference
  double cosine = 0;               // of the angle between the two matrices as vectors
  Index mismatch_row = -1;  // first row where the truth is NaN or infinite and the result is not the same
};
MatrixError matrix_error(const RowMajorMatrix<double>& truth, const RowMajorMatrix<double>& result);

// Everything that both results have.
struct Metrics {
  std::optional<ScalarError> loss;
  std::optional<VectorError> token_loss;
  std::optional<MatrixError> student_input_grad, student_weight_grad;
  std::optional<VectorError> student_bias_grad;
};
// Throws std::invalid_argument, one sentence, where both have a part but in different shapes.
Metrics measure(const Result& truth, const Result& result, DType loss_format = DType::f64);

}  // namespace fljsd
