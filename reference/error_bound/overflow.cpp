// SPDX-License-Identifier: Apache-2.0
#include "reference/error_bound/overflow.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
// Partial sums are rounded, and everything here is evaluated in float64: far less than that.
constexpr double slack = 1 + 0x1p-10;

// Σ_v e^{log_prob_v − max}·size_v, each probability as large as its logits' errors allow.
double unnormalised_sum(std::span<const double> log_prob, std::span<const double> eta,
                        std::span<const double> size) {
  std::size_t top = log_prob.size();
  for (std::size_t v = 0; v < log_prob.size(); ++v)
    if (log_prob[v] > -infinity && (top == log_prob.size() || log_prob[v] > log_prob[top])) top = v;
  double sum = 0;
  for (std::size_t v = 0; v < log_prob.size(); ++v)
    if (log_prob[v] > -infinity) sum += grown(log_prob[v] - log_prob[top], eta[v] + eta[top]) * size[v];
  return sum;
}

}  // namespace

bool formulas_may_overflow(const RowCondition& row, std::span<const double> x, std::span<const double> y,
                           const RatioChange& ratio, const Range& range) {
  std::vector<double> size(row.size());
  const auto add = [&](std::size_t v, double number, double largest) {
    if (number == -infinity) return true;  // an entry that the model does not have
    size[v] += std::abs(number);
    return std::abs(number) * slack <= largest;
  };
  for (std::size_t v = 0; v < size.size(); ++v) {
    if (!add(v, x[v], range.largest) || !add(v, y[v], range.largest)) return true;
    if (!add(v, row.log_q[v], range.largest_log) || !add(v, row.log_p[v], range.largest_log)) return true;
    if (!(size[v] * slack <= range.largest)) return true;
  }
  return !(std::max(unnormalised_sum(row.log_q, ratio.student, size),
                    unnormalised_sum(row.log_p, ratio.teacher, size)) *
               slack <=
           range.largest);
}

double largest_gradient_part(const RowCondition& row, std::size_t v) {
  if (row.beta == 0) return std::max(row.student.prob[v], row.teacher.prob[v]);
  if (row.student.prob[v] == 0) return 0;
  return row.student.prob[v] * std::max(std::abs(row.student.score[v]), std::abs(row.student.mean_score));
}

}  // namespace fljsd
