// SPDX-License-Identifier: Apache-2.0
// The tiers of linear_jsd that start from exact logits, and what all tiers share.
#include "reference/linear_jsd.h"

#include <limits>

#include "reference/exact_rows.h"
#include "reference/linear_jsd_detail.h"
#include "reference/parallel.h"

namespace fljsd {
namespace detail {

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

void validate_token(const Problem& problem, Index token) {
  if (token < 0 || token >= problem.tokens()) {
    throw InvalidProblem("token " + std::to_string(token) + " was asked for, but it must be in [0, " +
                         std::to_string(problem.tokens()) + ").");
  }
}

std::vector<Index> weight_grad_rows(const Problem& problem, const Wanted& wanted) {
  if (!wanted.student_weight_grad) return {};
  if (wanted.weight_grad_rows) return *wanted.weight_grad_rows;
  std::vector<Index> rows(static_cast<std::size_t>(problem.vocab()));
  for (std::size_t v = 0; v < rows.size(); ++v) rows[v] = static_cast<Index>(v);
  return rows;
}

}  // namespace detail

template <class Real>
LogitRows<Real> logits(const Problem& problem, const Options& options, Index token) {
  validate(problem, options);
  detail::validate_token(problem, token);
  using detail::Threads;
  return detail::logits_of<Real>(detail::exact_row(problem, options, token, Threads::all),
                                 options.temperature, Threads::all);
}

template <class Real>
BasicResult<Real> linear_jsd(const Problem& problem, const Options& options, const Wanted& wanted) {
  validate(problem, options);
  detail::validate(problem, wanted);
  const std::vector<Index> tokens = detail::counted_tokens(problem, options);
  const Index valid = valid_vocab(problem, options), hidden = problem.student_input.cols;

  BasicResult<Real> result;
  result.counted = static_cast<Index>(tokens.size());
  result.token_loss.resize(static_cast<std::size_t>(problem.tokens()));
  std::vector<std::vector<Real>> dlogits(tokens.size());
  parallel_for(result.counted, [&](Index i) {
    const auto at = static_cast<std::size_t>(i);
    using detail::Threads;
    detail::RowResult<Real> row =
        detail::evaluate<Real>(detail::exact_row(problem, options, tokens[at], Threads::one), options,
                               wanted.any_grad(), Threads::one);
    result.token_loss[static_cast<std::size_t>(tokens[at])] = row.loss;
    dlogits[at] = std::move(row.dlogits);
  });
  if (options.reduction != Reduction::none) {
    Sum<Real> sum;
    for (Index t : tokens) sum.add(result.token_loss[static_cast<std::size_t>(t)]);
    result.loss = sum.value() / Real(static_cast<double>(reduction_divisor(options, result.counted)));
  }

  const detail::GradientEntries<Real> gradients(problem, options, tokens, dlogits);
  if (wanted.student_input_grad) {
    result.student_input_grad.setZero(problem.tokens(), hidden);
    parallel_for(result.counted, [&](Index i) {
      for (Index h = 0; h < hidden; ++h)
        result.student_input_grad(tokens[static_cast<std::size_t>(i)], h) = gradients.input(i, h);
    });
  }
  if (wanted.student_weight_grad) {
    const std::vector<Index> rows = detail::weight_grad_rows(problem, wanted);
    result.student_weight_grad.setZero(static_cast<Index>(rows.size()), hidden);
    parallel_for(static_cast<Index>(rows.size()), [&](Index r) {
      const Index v = rows[static_cast<std::size_t>(r)];
      for (Index h = 0; h < hidden && v < valid; ++h)
        result.student_weight_grad(r, h) = gradients.weight(v, h);
    });
  }
  if (wanted.student_bias_grad) {
    result.student_bias_grad.resize(static_cast<std::size_t>(problem.vocab()));
    parallel_for(valid,
                 [&](Index v) { result.student_bias_grad[static_cast<std::size_t>(v)] = gradients.bias(v); });
  }
  return result;
}

template BasicResult<Real100> linear_jsd(const Problem&, const Options&, const Wanted&);
template BasicResult<Interval<40>> linear_jsd(const Problem&, const Options&, const Wanted&);
template BasicResult<Interval<80>> linear_jsd(const Problem&, const Options&, const Wanted&);
template BasicResult<Interval<160>> linear_jsd(const Problem&, const Options&, const Wanted&);
template LogitRows<Real100> logits(const Problem&, const Options&, Index);
template LogitRows<Interval<40>> logits(const Problem&, const Options&, Index);
template LogitRows<Interval<80>> logits(const Problem&, const Options&, Index);
template LogitRows<Interval<160>> logits(const Problem&, const Options&, Index);

}  // namespace fljsd
