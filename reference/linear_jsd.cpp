// SPDX-License-Identifier: Apache-2.0
#include "reference/linear_jsd.h"

#include "reference/linear_jsd_detail.h"

namespace fljsd::detail {

std::vector<Index> counted_tokens(const Problem& problem, const Options& options) {
  std::vector<Index> tokens;
  for (Index t = 0; t < problem.tokens(); ++t)
    if (is_counted(problem, options, t)) tokens.push_back(t);
  return tokens;
}

void validate(const Problem& problem, const Wanted& wanted) {
  if (!wanted.weight_grad_rows) return;
  for (Index row : *wanted.weight_grad_rows) {
    if (row < 0 || row >= problem.vocab()) {
      throw InvalidProblem("weight_grad_rows holds row " + std::to_string(row) + ", but it must be in [0, " +
                           std::to_string(problem.vocab() - 1) + "].");
    }
  }
}

}  // namespace fljsd::detail
