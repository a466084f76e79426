// SPDX-License-Identifier: Apache-2.0
// Whether some right way to evaluate a token's loss and gradient may leave the range of its format, although
// the answer is within it.
#pragma once

#include <span>

#include "reference/error_bound/condition.h"

namespace fljsd {

// What numbers between the logits and the results may at most be.
struct Range {
  double largest = 0;      // of the arithmetic
  double largest_log = 0;  // of the format that log-probabilities are stored in
};

// x, y: the row's logits, temperature applied; `ratio`: how far the logits really used may be from them. The
// numbers that count are those that some textbook formula forms, for entries that the models have:
//
//   size_v = |x_v| + |y_v| + |log q_v| + |log p_v|      bounds y_v − x_v, x_v − max x, log q_v, log(p_v/q_v),
//   ... Σ_v e^{x_v − max x}·size_v, Σ_v e^{y_v − max y}·size_v    weighted sums that are divided by Σ e^{x −
//   max} at
//                                                        the end only
//
// Probabilities at most 1 times such numbers are smaller. docs/error_analysis.md, section 5.
bool formulas_may_overflow(const RowCondition& row, std::span<const double> x, std::span<const double> y,
                           const RatioChange& ratio, const Range& range);

// The largest of the parts from which element v of dD/dx is put together: q_v·|score_v| and q_v·|mean score|,
// at beta = 0 q_v and p_v.
double largest_gradient_part(const RowCondition& row, std::size_t v);

}  // namespace fljsd
