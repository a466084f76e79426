// SPDX-License-Identifier: Apache-2.0
// A-priori error bounds of the whole pipeline: logits, losses, gradients.
//
//   roundoff.h    sums and dot products
//   condition.h   what an error of the logits does to losses and gradients
//   evaluation.h  what evaluating the formulas costs
//   this file     all steps of an implementation, whose arithmetic is a value of type ArithmeticModel
//
// Each bound is derived in docs/error_analysis.md.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reference/error_bound/evaluation.h"
#include "reference/error_bound/roundoff.h"
#include "reference/linear_jsd.h"

namespace fljsd {

// The arithmetic of an implementation, step by step: what its contract allows it to round.
struct ArithmeticModel {
  DotArithmetic dot;         // of logits, and of the gradients' products
  double logit_storage = 0;  // unit roundoff of the format that logits are kept in, at each step up to them
  FormulaArithmetic formula;
  double loss_storage = 0;  // unit roundoff of the format that losses are returned in
  // dlogits and gradients may be stored in the formats of the student's tensors; else in float64.
  bool gradients_in_input_format = false;
  // The weight gradient may be summed in its stored format over up to ceil(vocab / hidden) chunks of tokens.
  bool weight_grad_in_chunks = false;

  // The same arithmetic with the statistical bounds for all its sums; 0: worst case only.
  ArithmeticModel with_lambda(double lambda) const;
};

// The arithmetic of linear_jsd<double>: worst case throughout, nothing statistical.
ArithmeticModel double_tier_arithmetic();

// Upper bounds on |computed − exact|. Infinite where the arithmetic may overflow, token by token and row by
// row (NaN then stands for anything); 0 for what is exact (tokens that are ignored, rows past valid_vocab).
struct ErrorBound {
  double loss = 0;                          // 0 for Reduction::none
  std::vector<double> token_loss;           // [tokens]
  std::vector<double> student_input_grad;   // [tokens], of the row's error in the 2-norm
  double student_input_grad_total = 0;      // of the whole gradient's error in the Frobenius norm
  std::vector<double> student_weight_grad;  // [vocab], or one for each of weight_grad_rows: 2-norms
  double student_weight_grad_total = 0;
  std::vector<double> student_bias_grad;  // [vocab], elementwise
  double logit = 0;                       // the largest bound of a logit's error over all tokens and entries
  // [tokens]: whether a right implementation may overflow on the way to the token's loss or gradient. If so,
  // both bounds are infinite, and an infinite loss may be missed: NaN may stand for it.
  std::vector<bool> may_overflow;
};

// Bounds for several models at once, sharing the work of forming the logits (in float64, exactly as
// costly as the losses themselves). `near` is any good approximation of the exact result, linear_jsd<double>
// for instance: the size of its gradients enters the bounds of their storage. What `wanted` asks for must be
// there. Throws InvalidProblem as validate() does.
//
// A token without a distribution, or with an infinite loss, has an infinite bound.
//
// Memory besides inputs and `near`: about 512 MiB at most, and 32 bytes for each row of the weights and each
// model.
std::vector<ErrorBound> error_bounds(const Problem& problem, const Options& options, const Wanted& wanted,
                                     const Result& near, std::span<const ArithmeticModel> models);

// A rigorous bound on |linear_jsd<double>(problem, options, wanted) − truth|.
ErrorBound double_tier_bound(const Problem& problem, const Options& options, const Wanted& wanted,
                             const Result& result);

}  // namespace fljsd
