// SPDX-License-Identifier: Apache-2.0
#include "verify/judge/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double quotient(double error, double size) {
  if (error == 0) return 0;
  return size > 0 ? error / size : infinity;
}

// Spacing of the format's numbers at |x|.
double spacing(DType dtype, double x) {
  const Format format = format_of(dtype);
  const int exponent =
      x == 0 ? format.min_exponent : std::clamp(std::ilogb(x), format.min_exponent, format.max_exponent);
  return std::ldexp(1.0, exponent - format.precision + 1);
}

// The p-th quantile as the smallest element that at least that share of all elements does not exceed.
double quantile(std::vector<double> values, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

// Sums for norms and cosine. Elements where the truth is not finite are compared, not summed: matched they
// count as absent, unmatched they make the error infinite.
class Products {
 public:
  void add(double truth, double result) {
    const double error = absolute_error(truth, result);
    if (std::isfinite(truth)) truth_.add(truth);  // whatever the result makes of it
    if (!std::isfinite(error)) {
      unmatched_ = true;
      return;
    }
    if (!std::isfinite(truth)) return;
    error_.add(error), result_.add(result);
  }
  double error() const { return unmatched_ ? infinity : error_.value(); }
  double truth() const { return truth_.value(); }
  double result() const { return result_.value(); }
  bool unmatched() const { return unmatched_; }

 private:
  // Numbers whose squares would under- or overflow are summed apart, scaled (Blue's algorithm).
  struct Norm {
    double small = 0, medium = 0, large = 0;
    void add(double x) {
      const double size = std::abs(x);
      if (size > 0x1p480) {
        large += (x * 0x1p-600) * (x * 0x1p-600);
      } else if (size < 0x1p-480) {
        small += (x * 0x1p540) * (x * 0x1p540);
      } else {
        medium += x * x;
      }
    }
    double value() const {
      if (large > 0) return 0x1p600 * std::sqrt(large + 0x1p-600 * medium * 0x1p-600);
      if (medium > 0) return std::sqrt(medium + 0x1p-540 * small * 0x1p-540);
      return 0x1p-540 * std::sqrt(small);
    }
  };
  Norm error_, truth_, result_;
  bool unmatched_ = false;
};

// cos of the angle from three norms: |a − b|² = |a|² + |b|² − 2·a·b. Formed from unit vectors it would lose
// small angles; as 1 − (|a−b|² − (|a|−|b|)²) / (2|a||b|) it does not.
double cosine(const Products& products) {
  if (products.unmatched()) return std::numeric_limits<double>::quiet_NaN();
  const double a = products.truth(), b = products.result(), c = products.error();
  if (a == 0 && b == 0) return 1;
  if (a == 0 || b == 0) return 0;
  const double gap = std::abs(a - b);
  return std::clamp(1 - (c - gap) / a * ((c + gap) / b) / 2, -1.0, 1.0);
}

std::invalid_argument wrong_shape(const char* part, Index rows, Index cols, Index want_rows,
                                  Index want_cols) {
  const auto shape = [](Index r, Index c) {
    return c < 0 ? "[" + std::to_string(r) + "]" : "[" + std::to_string(r) + ", " + std::to_string(c) + "]";
  };
  return std::invalid_argument(std::string(part) + " of the result has shape " + shape(rows, cols) +
                               ", but the truth has " + shape(want_rows, want_cols) + ".");
}

std::optional<VectorError> compare(const char* part, const std::vector<double>& truth,
                                   const std::vector<double>& result) {
  if (truth.empty() || result.empty()) return std::nullopt;
  if (truth.size() != result.size())
    throw wrong_shape(part, static_cast<Index>(result.size()), -1, static_cast<Index>(truth.size()), -1);
  return vector_error(truth, result);
}

std::optional<MatrixError> compare(const char* part, const RowMajorMatrix<double>& truth,
                                   const RowMajorMatrix<double>& result) {
  if (truth.size() == 0 || result.size() == 0) return std::nullopt;
  if (truth.rows() != result.rows() || truth.cols() != result.cols())
    throw wrong_shape(part, result.rows(), result.cols(), truth.rows(), truth.cols());
  return matrix_error(truth, result);
}

}  // namespace

double absolute_error(double truth, double result) {
  if (std::isnan(truth)) return std::isnan(result) ? 0 : infinity;
  if (std::isinf(truth)) return result == truth ? 0 : infinity;
  const double error = std::abs(result - truth);
  return std::isnan(error) ? infinity : error;
}

ScalarError scalar_error(double truth, double result, DType format) {
  ScalarError error{truth, result, absolute_error(truth, result), 0, 0};
  error.relative = quotient(error.absolute, std::isfinite(truth) ? std::abs(truth) : 0);
  error.ulps = error.absolute == 0 ? 0 : error.absolute / spacing(format, std::isfinite(truth) ? truth : 0);
  return error;
}

VectorError vector_error(const std::vector<double>& truth, const std::vector<double>& result) {
  VectorError error;
  error.error.resize(truth.size());
  Products products;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    error.error[i] = absolute_error(truth[i], result[i]);
    products.add(truth[i], result[i]);
    if (!std::isfinite(truth[i]) && error.error[i] > 0 && error.mismatch < 0)
      error.mismatch = static_cast<Index>(i);
    if (error.error[i] > error.max) {
      error.max = error.error[i];
      error.worst = static_cast<Index>(i);
    }
  }
  if (!truth.empty()) {
    error.median = quantile(error.error, 0.5);
    error.p99 = quantile(error.error, 0.99);
  }
  error.relative_l2 = quotient(products.error(), products.truth());
  error.cosine = cosine(products);
  return error;
}

MatrixError matrix_error(const RowMajorMatrix<double>& truth, const RowMajorMatrix<double>& result) {
  MatrixError error;
  Products all;
  for (Index r = 0; r < truth.rows(); ++r) {
    Products row;
    for (Index c = 0; c < truth.cols(); ++c) {
      row.add(truth(r, c), result(r, c));
      all.add(truth(r, c), result(r, c));
      if (!std::isfinite(truth(r, c)) && absolute_error(truth(r, c), result(r, c)) > 0 &&
          error.mismatch_row < 0)
        error.mismatch_row = r;
    }
    error.row_error.push_back(row.error());
    error.row_truth.push_back(row.truth());
    if (const double relative = quotient(row.error(), row.truth()); relative > error.max_row_relative_l2) {
      error.max_row_relative_l2 = relative;
      error.worst_row = r;
    }
  }
  error.absolute_l2 = all.error();
  error.relative_l2 = quotient(all.error(), all.truth());
  error.cosine = cosine(all);
  return error;
}

Metrics measure(const Result& truth, const Result& result, DType loss_format) {
  Metrics metrics;
  if (truth.loss && result.loss) metrics.loss = scalar_error(*truth.loss, *result.loss, loss_format);
  metrics.token_loss = compare("token_loss", truth.token_loss, result.token_loss);
  metrics.student_input_grad =
      compare("student_input_grad", truth.student_input_grad, result.student_input_grad);
  metrics.student_weight_grad =
      compare("student_weight_grad", truth.student_weight_grad, result.student_weight_grad);
  metrics.student_bias_grad = compare("student_bias_grad", truth.student_bias_grad, result.student_bias_grad);
  return metrics;
}

}  // namespace fljsd
