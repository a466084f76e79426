// SPDX-License-Identifier: Apache-2.0
// The spec on exact logits, row by row: what linear_jsd<Real100>, linear_jsd<Interval<N>> and the certified
// tier have in common. Not part of the public interface.
#pragma once

#include <functional>
#include <vector>

#include "reference/exact_dot.h"
#include "reference/linear_jsd.h"

namespace fljsd::detail {

// Whether a function may start threads, or runs on one of several already.
enum class Threads { one, all };

// body(i) for each i in [0, count).
void for_each(Threads threads, Index count, const std::function<void(Index)>& body);

// The exact products of one token, temperature not yet applied: dot + bias of both models, v < valid_vocab.
struct ExactRow {
  std::vector<ExactValue> student;
  std::vector<ExactValue> teacher;
};
ExactRow exact_row(const Problem& problem, const Options& options, Index token, Threads threads);

// Whether the teacher's logits are the student's plus one constant, and at least one is finite: then p = q
// exactly. Entries that are −inf in both models have no say.
bool differs_by_constant(const ExactRow& row);

// A row of logits after the temperature.
template <class Real>
LogitRows<Real> logits_of(const ExactRow& row, double temperature, Threads threads);

// The spec's results for one row.
template <class Real>
struct RowResult {
  bool exists = false;        // false: a model has no distribution there, and everything is NaN
  Real loss = 0;              // D
  std::vector<Real> dlogits;  // dD/dx [valid vocab], when asked for
};
template <class Real>
RowResult<Real> evaluate(const ExactRow& row, const Options& options, bool with_gradient, Threads threads);

// Gradients one entry at a time, from dD/dx of all counted tokens; scaled as Options tell.
template <class Real>
class GradientEntries {
 public:
  // dlogits[i] belongs to tokens[i]; the arguments must outlive the object.
  GradientEntries(const Problem& problem, const Options& options, const std::vector<Index>& tokens,
                  const std::vector<std::vector<Real>>& dlogits);
  Real input(Index i, Index h) const;   // of token tokens[i]
  Real weight(Index v, Index h) const;  // v < valid vocab
  Real bias(Index v) const;             // v < valid vocab

 private:
  Real scaled(const Real& sum) const { return sum / divisor_ / temperature_; }
  const Problem& problem_;
  const std::vector<Index>& tokens_;
  const std::vector<std::vector<Real>>& dlogits_;
  Real divisor_, temperature_;
};

}  // namespace fljsd::detail
