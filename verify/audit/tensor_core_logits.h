// SPDX-License-Identifier: Apache-2.0
// Logits as Hopper's tensor cores sum them, beside exact ones and the bounds of docs/error_analysis.md,
// section 11.
#pragma once

#include <optional>
#include <span>

#include "reference/problem.h"

namespace fljsd {

struct TensorCoreLogits {
  Index logits = 0;     // student's and teacher's, without bias and temperature
  double error = 0;     // the largest |tensor core − exact|
  double dropped = 0;   // the largest bound that follows from what a sum dropped on the way
  double a_priori = 0;  // the largest bound from the operands' sizes
  // The largest error over its own bound, of either kind.
  double error_over_dropped = 0, error_over_a_priori = 0;
  bool kept() const { return error_over_dropped <= 1 && error_over_a_priori <= 1; }
};

// Of the given tokens and entries of the vocabulary those logits that are finite. Nothing if tensor cores do
// not take the operands as they are, or no logit is finite.
std::optional<TensorCoreLogits> tensor_core_logits(const Problem& problem, std::span<const Index> tokens,
                                                   std::span<const Index> entries);

}  // namespace fljsd
