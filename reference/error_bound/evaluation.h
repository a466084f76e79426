// SPDX-License-Identifier: Apache-2.0
// Errors of evaluating D and dD/dx from given logits: exponentials, logarithms, sums over the vocabulary.
#pragma once

#include <span>

#include "reference/error_bound/condition.h"

namespace fljsd {

// The arithmetic between the logits and the losses and gradients.
struct FormulaArithmetic {
  double unit = 0;      // unit roundoff; exp, expm1, log and log1p are within 8 of it
  double smallest = 0;  // absolute error of a probability or term that underflows
  // 0: only the worst case holds for sums over the vocabulary; else also the statistical bound.
  double lambda = 0;
  // Unit roundoff of the format that log-probabilities, and gradients with respect to them, are kept in;
  // 0: nothing narrower than `unit`.
  double log_probability_storage = 0;
  // Absolute error, in nats, of D and of (1−beta)·KL(q‖M) where they are approximated rather than evaluated.
  double approximation = 0;
  // false: any textbook formula (log mixture, softplus, one pass), whose error does not vanish with p − q.
  // true: the formulas of divergence.h with compensated sums, whose error does.
  bool difference_form = false;
};

// What is evaluated: a row, its logits, and how far the logits that are really used may be from these.
struct EvaluatedRow {
  const RowCondition& row;
  std::span<const double> x, y;  // student and teacher, temperature applied
  const RatioChange& ratio;
};

// Bound on |computed D − D(logits used)|; writes the same for each element of dD/dx.
double evaluation_error(const EvaluatedRow& evaluated, const FormulaArithmetic& arithmetic,
                        std::span<double> gradient);

}  // namespace fljsd
