// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/cuda/stage_form.h"

#include <algorithm>
#include <cmath>

#include "reference/linear_jsd.h"

namespace fljsd {
namespace {

constexpr double largest_logit = 0x1p125;

double largest_magnitude(const MatrixView& m) {
  double largest = 0;
  for (Index r = 0; r < m.rows; ++r) {
    for (Index c = 0; c < m.cols; ++c) {
      const double magnitude = std::abs(m(r, c));
      if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
    }
  }
  return largest;
}

}  // namespace

OneFormat::OneFormat(MatrixView& input, MatrixView& weight) {
  if (input.dtype == weight.dtype) return;
  for (MatrixView* m : {&input, &weight}) {
    if (m->dtype != DType::f32) *m = widen(*m);
  }
}

MatrixView OneFormat::widen(const MatrixView& m) {
  const auto elements = static_cast<std::size_t>(m.rows == 0 ? 0 : (m.rows - 1) * m.row_stride + m.cols);
  std::vector<float>& wide = storage_.emplace_back(elements + 1);  // never null
  for (std::size_t i = 0; i < elements; ++i)
    wide[i] = static_cast<float>(load(m.dtype, m.data, static_cast<Index>(i)));
  return {DType::f32, wide.data(), m.rows, m.cols, m.row_stride};
}

// A cheap bound on all logits goes first.
bool has_enormous_logits(const Problem& p, const Options& options) {
  const double divisor = std::min(options.temperature, 1.0);  // of a logit, before or after the temperature
  double bias = 0;
  for (const auto& b : {p.student_bias, p.teacher_bias}) {
    for (Index v = 0; b && v < b->size; ++v)
      if (std::isfinite((*b)(v))) bias = std::max(bias, std::abs((*b)(v)));
  }
  const auto bound = [&](const MatrixView& input, const MatrixView& weight) {
    return (static_cast<double>(input.cols) * largest_magnitude(input) * largest_magnitude(weight) + bias) /
           divisor;
  };
  if (bias / divisor > largest_logit) return true;
  if (bound(p.student_input, p.student_weight) <= largest_logit &&
      bound(p.teacher_input, p.teacher_weight) <= largest_logit) {
    return false;
  }
  // Products are what overflows, also where a bias of −inf removes the entry afterwards.
  Problem products = p;
  products.student_bias.reset();
  products.teacher_bias.reset();
  Options scaled = options;
  scaled.temperature = divisor;
  const auto enormous = [](double x) { return std::isfinite(x) && std::abs(x) > largest_logit; };
  for (Index t = 0; t < p.tokens(); ++t) {
    if (!is_counted(p, options, t)) continue;
    const LogitRows<double> rows = logits<double>(products, scaled, t);
    if (std::any_of(rows.student.begin(), rows.student.end(), enormous) ||
        std::any_of(rows.teacher.begin(), rows.teacher.end(), enormous)) {
      return true;
    }
  }
  return false;
}

}  // namespace fljsd
