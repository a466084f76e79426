// SPDX-License-Identifier: Apache-2.0
#include "verify/audit/tensor_core_logits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "reference/exact_dot.h"
#include "reference/rounding/tensor_core_products.h"
#include "reference/tensor_core_bound.h"

namespace fljsd {
namespace {

// One row of an operand: its bits, exactly, and the sizes that Theorem 8 counts.
struct Row {
  Row(const MatrixView& matrix, Index row)
      : bits(static_cast<std::size_t>(matrix.cols)), sizes(static_cast<std::size_t>(matrix.cols)) {
    std::memcpy(bits.data(), static_cast<const std::byte*>(matrix.data) + row * matrix.row_stride * 2,
                bits.size() * 2);
    exact.assign(matrix.dtype, bits.data(), 0, matrix.cols);
    const double smallest = std::ldexp(1.0, format_of(matrix.dtype).min_exponent);
    for (Index k = 0; k < matrix.cols; ++k) {
      const double x = std::abs(matrix(row, k));
      sizes[static_cast<std::size_t>(k)] = x == 0 ? 0 : std::max(x, smallest);
    }
  }
  std::vector<std::uint16_t> bits;
  ExactVector exact;
  std::vector<double> sizes;
};

double ratio(double error, double bound) {
  return error == 0 ? 0 : error / bound;
}

void add(TensorCoreLogits& all, DType dtype, const Row& input, const Row& weight) {
  const auto count = static_cast<Index>(input.bits.size());
  const BoundedSum sum =
      tensor_core_dot_with_bound(hopper_tensor_core, dtype, input.bits.data(), weight.bits.data(), count);
  if (!std::isfinite(sum.value)) return;
  const ExactValue exact = exact_dot(input.exact, weight.exact);
  const double error = std::abs((exact - ExactValue(static_cast<double>(sum.value))).to<double>());
  double absolute = 0;
  for (std::size_t k = 0; k < input.sizes.size(); ++k) absolute += input.sizes[k] * weight.sizes[k];
  // The sum of sizes is rounded itself.
  const double a_priori = tensor_core_error(hopper_tensor_core, static_cast<double>(count),
                                            absolute * (1 + 0x1p-52 * static_cast<double>(count)));
  ++all.logits;
  all.error = std::max(all.error, error);
  all.dropped = std::max(all.dropped, sum.error);
  all.a_priori = std::max(all.a_priori, a_priori);
  all.error_over_dropped = std::max(all.error_over_dropped, ratio(error, sum.error));
  all.error_over_a_priori = std::max(all.error_over_a_priori, ratio(error, a_priori));
}

}  // namespace

std::optional<TensorCoreLogits> tensor_core_logits(const Problem& problem, std::span<const Index> tokens,
                                                   std::span<const Index> entries) {
  TensorCoreLogits all;
  const auto head = [&](const MatrixView& input, const MatrixView& weight) {
    if (!suits_tensor_core(input, weight)) return;
    std::vector<Row> rows;
    for (const Index v : entries) rows.emplace_back(weight, v);
    for (const Index token : tokens) {
      const Row row(input, token);
      for (const Row& w : rows) add(all, input.dtype, row, w);
    }
  };
  head(problem.student_input, problem.student_weight);
  head(problem.teacher_input, problem.teacher_weight);
  return all.logits > 0 ? std::optional(all) : std::nullopt;
}

}  // namespace fljsd
