// SPDX-License-Identifier: Apache-2.0
// The whole pipeline: activations through both heads to logits, losses and gradients.
//
// One template, three tiers (see real.h). Real = double is the everyday tier: logits by blocked float64
// products, then the spec in divergence.h. For Real100 and Interval<N> the logits are exact (exact_dot.h)
// before the first rounding.
#pragma once

#include <optional>
#include <vector>

#include <Eigen/Core>

#include "reference/problem.h"
#include "reference/real.h"

namespace fljsd {

template <class Real>
using RowMajorMatrix = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// What to compute besides the losses.
struct Wanted {
  bool student_input_grad = false;
  bool student_weight_grad = false;
  bool student_bias_grad = false;  // allowed without a bias: the gradient of a bias of zeros
  // Only these rows of the weight gradient, in this order: a sample of a large vocabulary. Absent: all of
  // them.
  std::optional<std::vector<Index>> weight_grad_rows;

  static Wanted all() { return {true, true, true, std::nullopt}; }
  bool any_grad() const { return student_input_grad || student_weight_grad || student_bias_grad; }
};

// Everything is in natural units (nats). Gradients that were not asked for are empty.
template <class Real>
struct BasicResult {
  std::optional<Real> loss;                 // absent for Reduction::none
  Index counted = 0;                        // tokens that are not ignored
  std::vector<Real> token_loss;             // [tokens], before any reduction; 0 for an ignored token
  RowMajorMatrix<Real> student_input_grad;  // [tokens, student_hidden]
  RowMajorMatrix<Real>
      student_weight_grad;              // [vocab, student_hidden], or one row for each of weight_grad_rows
  std::vector<Real> student_bias_grad;  // [vocab]
};
using Result = BasicResult<double>;

// Losses and gradients of the problem; throws InvalidProblem as validate() does.
//
// A token whose logits hold NaN, +inf or no finite value has no distribution: its loss, its row of the input
// gradient, and the rows v < valid_vocab of the weight and bias gradients are NaN. Ignored tokens are never
// read.
//
// Memory, Real = double: at most about 1 GiB besides the inputs and the gradients asked for, whatever the
// sizes are. The result does not depend on the number of threads.
template <class Real>
BasicResult<Real> linear_jsd(const Problem& problem, const Options& options, const Wanted& wanted = {});
template <>
Result linear_jsd<double>(const Problem& problem, const Options& options, const Wanted& wanted);

// The logits that linear_jsd works from: row `token` of student and teacher, v < valid_vocab, temperature
// applied.
template <class Real>
struct LogitRows {
  std::vector<Real> student;
  std::vector<Real> teacher;
};
template <class Real>
LogitRows<Real> logits(const Problem& problem, const Options& options, Index token);
template <>
LogitRows<double> logits<double>(const Problem& problem, const Options& options, Index token);

}  // namespace fljsd
