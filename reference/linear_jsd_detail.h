// SPDX-License-Identifier: Apache-2.0
// What the parts of linear_jsd share with each other and with the tests; not part of the public interface.
#pragma once

#include <span>

#include "reference/linear_jsd.h"

namespace fljsd::detail {

// One of the two models: everything its logits depend on.
struct Model {
  MatrixView input;                // [tokens, hidden]
  MatrixView weight;               // [vocab, hidden]
  std::optional<VectorView> bias;  // [vocab]
};

inline Model student(const Problem& problem) {
  return {problem.student_input, problem.student_weight, problem.student_bias};
}
inline Model teacher(const Problem& problem) {
  return {problem.teacher_input, problem.teacher_weight, problem.teacher_bias};
}

// The tokens that take part, in order.
std::vector<Index> counted_tokens(const Problem& problem, const Options& options);

// Throws InvalidProblem unless every one of wanted.weight_grad_rows is a row of student_weight.
void validate(const Problem& problem, const Wanted& wanted);
// Throws InvalidProblem unless the token exists.
void validate_token(const Problem& problem, Index token);

// The vocabulary entry of each row of the weight gradient; empty when it was not asked for.
std::vector<Index> weight_grad_rows(const Problem& problem, const Wanted& wanted);

// How the float64 tier cuts its matrices. Sizes change the order of summation, hence the last bits of the
// result, and nothing else.
struct BlockSizes {
  Index tokens;  // logits of this many tokens are held at a time, for both models
  Index vocab;   // rows of a weight that a thread decodes at a time ...
  Index hidden;  // ... and columns of them
};

// Sizes that keep the working memory of the float64 tier below 1 GiB and its products efficient.
BlockSizes default_blocks(Index counted, Index vocab);

// The float64 logits of these tokens, temperature applied: student into x, teacher into y, both
// [tokens.size(), valid_vocab], which the caller has sized.
void float64_logits(const Problem& problem, const Options& options, std::span<const Index> tokens,
                    const BlockSizes& blocks, RowMajorMatrix<double>& x, RowMajorMatrix<double>& y);

// linear_jsd<double> cut as told.
Result linear_jsd_blocked(const Problem& problem, const Options& options, const Wanted& wanted,
                          const BlockSizes& blocks);

}  // namespace fljsd::detail
