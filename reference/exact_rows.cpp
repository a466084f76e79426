// SPDX-License-Identifier: Apache-2.0
#include "reference/exact_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "reference/divergence.h"
#include "reference/linear_jsd_detail.h"
#include "reference/parallel.h"

namespace fljsd::detail {

void for_each(Threads threads, Index count, const std::function<void(Index)>& body) {
  if (threads == Threads::all) {
    parallel_for(count, body);
  } else {
    for (Index i = 0; i < count; ++i) body(i);
  }
}

namespace {

// body(first, last) for consecutive pieces of [0, size), each worth at most `grain` entries. The pieces do
// not depend on the number of threads.
void for_pieces(Threads threads, Index size, Index grain, const std::function<void(Index, Index)>& body) {
  for_each(threads, (size + grain - 1) / grain,
           [&](Index i) { body(i * grain, std::min((i + 1) * grain, size)); });
}

// Entries of a row that one thread evaluates at a time: tens of milliseconds of interval arithmetic.
constexpr Index row_grain = 1024;

std::vector<ExactValue> exact_logits(const Model& model, Index token, Index valid, Threads threads) {
  ExactVector input;
  input.assign_row(model.input, token);
  std::vector<ExactValue> logits(static_cast<std::size_t>(valid));
  // About a million products a piece.
  const Index grain = std::max<Index>(1, (Index{1} << 20) / model.weight.cols);
  for_pieces(threads, valid, grain, [&](Index first, Index last) {
    ExactVector weight;
    for (Index v = first; v < last; ++v) {
      weight.assign_row(model.weight, v);
      ExactValue dot = exact_dot(input, weight);
      logits[static_cast<std::size_t>(v)] = model.bias ? dot + ExactValue((*model.bias)(v)) : std::move(dot);
    }
  });
  return logits;
}

}  // namespace

ExactRow exact_row(const Problem& problem, const Options& options, Index token, Threads threads) {
  const Index valid = valid_vocab(problem, options);
  return {exact_logits(student(problem), token, valid, threads),
          exact_logits(teacher(problem), token, valid, threads)};
}

bool differs_by_constant(const ExactRow& row) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::optional<ExactValue> difference;
  for (std::size_t v = 0; v < row.student.size(); ++v) {
    // As everywhere, what is outside the range of double counts as infinite.
    const double x = row.student[v].to<double>(), y = row.teacher[v].to<double>();
    if (x == -infinity && y == -infinity) continue;
    if (!std::isfinite(x) || !std::isfinite(y)) return false;
    const ExactValue here = row.teacher[v] - row.student[v];
    if (!difference) difference = here;
    if (!(here == *difference)) return false;
  }
  return difference.has_value();
}

template <class Real>
LogitRows<Real> logits_of(const ExactRow& row, double temperature, Threads threads) {
  const std::size_t size = row.student.size();
  LogitRows<Real> logits{std::vector<Real>(size), std::vector<Real>(size)};
  const Real divisor = temperature;
  for_pieces(threads, static_cast<Index>(size), row_grain, [&](Index first, Index last) {
    for (auto v = static_cast<std::size_t>(first); v < static_cast<std::size_t>(last); ++v) {
      logits.student[v] = row.student[v].to<Real>() / divisor;
      logits.teacher[v] = row.teacher[v].to<Real>() / divisor;
    }
  });
  return logits;
}

namespace {

// Σ over the row of part(piece of log_larger, piece of d).
template <class Real, class Part>
Real sum_over_pieces(std::span<const Real> log_larger, std::span<const Real> d, Threads threads,
                     const Part& part) {
  const Index size = static_cast<Index>(d.size());
  std::vector<Real> parts(static_cast<std::size_t>((size + row_grain - 1) / row_grain));
  for_pieces(threads, size, row_grain, [&](Index first, Index last) {
    const auto offset = static_cast<std::size_t>(first), count = static_cast<std::size_t>(last - first);
    parts[static_cast<std::size_t>(first / row_grain)] =
        part(log_larger.subspan(offset, count), d.subspan(offset, count));
  });
  Sum<Real> sum;
  for (const Real& value : parts) sum.add(value);
  return sum.value();
}

// The largest entry; nothing if one is NaN or +inf, or none is finite. `logits` are those of `exact`,
// rounded.
template <class Real>
std::optional<std::size_t> top_entry(const std::vector<ExactValue>& exact, const std::vector<Real>& logits) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::size_t top = 0;
  for (std::size_t v = 0; v < exact.size(); ++v) {
    const double value = pivot(logits[v]), largest = pivot(logits[top]);
    if (!(value < infinity)) return std::nullopt;
    if (value > largest ||
        (value == largest && value > -infinity && (exact[v] - exact[top]).to<double>() > 0))
      top = v;
  }
  return pivot(logits[top]) == -infinity ? std::nullopt : std::optional(top);
}

// Subtracts the largest logit from all, before anything is rounded: softmax does not notice. An interval's
// width is a share of the number that it is about, so that of a logit of 1e302 would leave nothing of e^{x −
// max}. A difference outside the range of double counts as infinite, as everywhere.
template <class Real>
void subtract_largest(const std::vector<ExactValue>& exact, double temperature, Threads threads,
                      std::vector<Real>& logits) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::optional<std::size_t> top = top_entry(exact, logits);
  if (!top) return;
  const Real divisor = temperature;
  for_pieces(threads, static_cast<Index>(exact.size()), row_grain, [&](Index first, Index last) {
    for (auto v = static_cast<std::size_t>(first); v < static_cast<std::size_t>(last); ++v)
      if (pivot(logits[v]) > -infinity) logits[v] = (exact[v] - exact[*top]).template to<Real>() / divisor;
  });
}

}  // namespace

template <class Real>
RowResult<Real> evaluate(const ExactRow& row, const Options& options, bool with_gradient, Threads threads) {
  LogitRows<Real> rows = logits_of<Real>(row, options.temperature, threads);
  subtract_largest(row.student, options.temperature, threads, rows.student);
  subtract_largest(row.teacher, options.temperature, threads, rows.teacher);
  RowResult<Real> result;
  result.exists = normalise(std::span<Real>(rows.student), std::span<Real>(rows.teacher));
  if (!result.exists) {
    const Real nan = std::numeric_limits<double>::quiet_NaN();
    result.loss = nan;
    if (with_gradient) result.dlogits.assign(rows.student.size(), nan);
    return result;
  }
  const std::span<const Real> log_larger = rows.student, d = rows.teacher;
  const Real beta = options.beta;
  using Piece = std::span<const Real>;
  result.loss =
      sum_over_pieces(log_larger, d, threads, [&](Piece a, Piece b) { return divergence(a, b, beta); });
  if (with_gradient) {
    const Real kl =
        options.beta == 0 ? Real(0) : sum_over_pieces(log_larger, d, threads, [&](Piece a, Piece b) {
          return student_kl(a, b, beta);
        });
    result.dlogits.resize(d.size());
    for_pieces(threads, static_cast<Index>(d.size()), row_grain, [&](Index first, Index last) {
      for (auto v = static_cast<std::size_t>(first); v < static_cast<std::size_t>(last); ++v)
        result.dlogits[v] = gradient_term(LogRatio<Real>{log_larger[v], d[v]}, beta, kl);
    });
  }
  return result;
}

template <class Real>
GradientEntries<Real>::GradientEntries(const Problem& problem, const Options& options,
                                       const std::vector<Index>& tokens,
                                       const std::vector<std::vector<Real>>& dlogits)
    : problem_(problem),
      tokens_(tokens),
      dlogits_(dlogits),
      divisor_(static_cast<double>(reduction_divisor(options, static_cast<Index>(tokens.size())))),
      temperature_(options.temperature) {}

template <class Real>
Real GradientEntries<Real>::input(Index i, Index h) const {
  Sum<Real> sum;
  const std::vector<Real>& row = dlogits_[static_cast<std::size_t>(i)];
  for (std::size_t v = 0; v < row.size(); ++v)
    sum.add(row[v] * Real(problem_.student_weight(static_cast<Index>(v), h)));
  return scaled(sum.value());
}

template <class Real>
Real GradientEntries<Real>::weight(Index v, Index h) const {
  Sum<Real> sum;
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    sum.add(dlogits_[i][static_cast<std::size_t>(v)] * Real(problem_.student_input(tokens_[i], h)));
  return scaled(sum.value());
}

template <class Real>
Real GradientEntries<Real>::bias(Index v) const {
  Sum<Real> sum;
  for (const std::vector<Real>& row : dlogits_) sum.add(row[static_cast<std::size_t>(v)]);
  return scaled(sum.value());
}

template LogitRows<Real100> logits_of(const ExactRow&, double, Threads);
template RowResult<Real100> evaluate(const ExactRow&, const Options&, bool, Threads);
template class GradientEntries<Real100>;
template LogitRows<Interval<40>> logits_of(const ExactRow&, double, Threads);
template RowResult<Interval<40>> evaluate(const ExactRow&, const Options&, bool, Threads);
template class GradientEntries<Interval<40>>;
template LogitRows<Interval<80>> logits_of(const ExactRow&, double, Threads);
template RowResult<Interval<80>> evaluate(const ExactRow&, const Options&, bool, Threads);
template class GradientEntries<Interval<80>>;
template LogitRows<Interval<160>> logits_of(const ExactRow&, double, Threads);
template RowResult<Interval<160>> evaluate(const ExactRow&, const Options&, bool, Threads);
template class GradientEntries<Interval<160>>;

}  // namespace fljsd::detail
