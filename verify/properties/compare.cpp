// SPDX-License-Identifier: Apache-2.0
#include "verify/properties/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double unit = 0x1p-53;

// The rule for NaN and infinity: distance 0 only to themselves.
double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double difference = std::abs(a - b);
  return std::isnan(difference) ? infinity : difference;
}

// The largest finite magnitude among values that take part, and whether one is infinite.
struct Magnitude {
  double largest = 0;
  bool infinite = false;

  void add(double x) {
    x = std::abs(x);
    infinite = infinite || x == infinity;
    if (std::isfinite(x)) largest = std::max(largest, x);
  }
};

// Of rows for which takes_part(row).
template <class TakesPart>
Magnitude magnitude(const MatrixView& m, const TakesPart& takes_part) {
  Magnitude result;
  for (Index r = 0; r < m.rows; ++r)
    for (Index c = 0; c < m.cols && takes_part(r); ++c) result.add(m(r, c));
  return result;
}

double at(const std::vector<double>& values, Index i) {
  return values[static_cast<std::size_t>(i)];
}

// Where row or entry `i` of B comes from in A.
Index source(const std::optional<Indices>& map, Index i) {
  return map ? (*map)[static_cast<std::size_t>(i)] : i;
}

bool is_power_of_two(double x) {
  int exponent;
  return std::abs(std::frexp(x, &exponent)) == 0.5;
}

}  // namespace

Evaluation::Evaluation(const Case& c, const Implementation& implementation)
    : Evaluation(c, implementation.compute(c), implementation) {}

Evaluation::Evaluation(const Case& c, Result r, const Implementation& implementation)
    : problem(c.problem()), options(c.options), result(std::move(r)), bound(implementation.bound(c, result)) {
  const Problem& p = problem;
  const Index valid = valid_vocab(p, options);
  const auto counts = [&](Index t) { return is_counted(p, options, t); };
  const auto exists = [&](Index v) { return v < valid; };
  const Magnitude student_input = magnitude(p.student_input, counts);
  const Magnitude teacher_input = magnitude(p.teacher_input, counts);
  const Magnitude student_weight = magnitude(p.student_weight, exists);
  const Magnitude teacher_weight = magnitude(p.teacher_weight, exists);
  infinite_tensors_ =
      student_input.infinite || teacher_input.infinite || student_weight.infinite || teacher_weight.infinite;
  largest_student_input = student_input.largest;
  largest_student_weight = student_weight.largest;
  Magnitude bias;
  for (const std::optional<VectorView>* b : {&p.student_bias, &p.teacher_bias})
    for (Index v = 0; *b && v < valid; ++v) bias.add((**b)(v));
  const auto hidden = static_cast<double>(std::max(p.student_input.cols, p.teacher_input.cols));
  const double logit = hidden * std::max(student_input.largest * student_weight.largest,
                                         teacher_input.largest * teacher_weight.largest) +
                       bias.largest;
  // |dD/dlogit| <= 1 + the largest log ratio, which is at most the range of the logits.
  const double scale = std::min(1.0, options.temperature);
  const double grad = (1 + 2 * logit / scale) * (student_weight.largest * static_cast<double>(p.vocab()) +
                                                 student_input.largest * static_cast<double>(p.tokens()));
  // A tensor's own values may be beyond the range, too: f64 in an implementation of fp32.
  const double value = std::max({student_input.largest, teacher_input.largest, student_weight.largest,
                                 teacher_weight.largest, bias.largest});
  may_overflow = !(value < implementation.largest && logit / scale < implementation.largest / 16 &&
                   grad / scale < implementation.largest / 16);
}

bool Evaluation::all_tokens_defined() const {
  // The reduced loss speaks for losses per token that the implementation lacks.
  if (result.token_loss.empty()) return !(result.loss && std::isnan(*result.loss));
  return std::none_of(result.token_loss.begin(), result.token_loss.end(),
                      [](double loss) { return std::isnan(loss); });
}

bool Evaluation::judges_input_grad(Index token) const {
  return !infinite_tensors_ && (result.token_loss.empty() || at(result.token_loss, token) != infinity);
}

bool Evaluation::judges_weight_grad() const {
  return !infinite_tensors_ &&
         std::find(result.token_loss.begin(), result.token_loss.end(), infinity) == result.token_loss.end();
}

std::optional<PropertyOutcome> lacking(const Implementation& implementation,
                                       std::initializer_list<const Case*> cases, FeatureSet more) {
  for (const Case* c : cases)
    for (const Feature feature : all_features())
      if (needed_features(*c).has(feature)) more.add(feature);
  const FeatureSet missing = more & implementation.lacks;
  if (missing.empty()) return std::nullopt;
  return not_applicable(fmt::format("{} lacks {}.", implementation.name, text(missing)));
}

PropertyOutcome not_applicable(std::string reason) {
  PropertyOutcome outcome;
  outcome.applicable = false;
  outcome.text = std::move(reason);
  return outcome;
}

double rounding_of(double result) {
  return std::isfinite(result) ? unit * std::abs(result) : 0;
}

double norm(std::span<const double> values) {
  double result = 0;
  for (const double x : values) result = std::hypot(result, x);
  return result;
}

void Comparison::record(double observed, double allowed, bool passed, const std::string& text) {
  if (!passed && outcome_.passed) {  // the first failure is the one that is reported
    outcome_ = {false, true, observed, allowed, text};
    return;
  }
  const double ratio = observed == 0 ? 0 : observed / allowed;
  if (outcome_.passed && ratio > worst_ratio_) {
    worst_ratio_ = ratio;
    outcome_.observed = observed;
    outcome_.allowed = allowed;
  }
}

void Comparison::equal(const std::string& what, double got, double expected, double allowed,
                       bool may_overflow) {
  const double observed = distance(got, expected);
  if (may_overflow && allowed == infinity) return;
  // An infinite bound says nothing about size, but finite must stay finite.
  const bool passed = observed == 0 || (observed <= allowed && std::isfinite(got) == std::isfinite(expected));
  record(observed, allowed, passed,
         passed ? std::string()
                : fmt::format("{} is {}, but it must be {} within {}.", what, got, expected, allowed));
}

void Comparison::at_most(const std::string& what, double got, double limit, double allowed,
                         bool may_overflow) {
  if (may_overflow && allowed == infinity) return;
  if (std::isnan(got) && std::isnan(limit)) return;
  const bool passed = got <= limit + allowed;
  const double excess = std::isnan(got) || std::isnan(limit) ? infinity : std::max(0.0, got - limit);
  record(limit == infinity ? 0 : excess, allowed, passed,
         passed ? std::string()
                : fmt::format("{} is {}, but it must be at most {} within {}.", what, got, limit, allowed));
}

void Comparison::equal_rows(const std::string& what, std::span<const double> got,
                            std::span<const double> expected, double allowed, bool may_overflow) {
  if (may_overflow && allowed == infinity) return;
  std::vector<double> difference(got.size());
  std::size_t worst = 0;
  bool finite_alike = true;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference[i] = distance(got[i], expected[i]);
    finite_alike = finite_alike && std::isfinite(got[i]) == std::isfinite(expected[i]);
    if (difference[i] > difference[worst]) worst = i;
  }
  const double observed = norm(difference);
  const bool passed = observed == 0 || (observed <= allowed && finite_alike);
  record(observed, allowed, passed,
         passed ? std::string()
                : fmt::format(
                      "{} is off by {} in the 2-norm, but {} is allowed; element {} is {} in place of {}.",
                      what, observed, allowed, worst, got[worst], expected[worst]));
}

void Comparison::fail(std::string text) {
  record(infinity, 0, false, text);
}

PropertyOutcome expect_correspondence(const Evaluation& a, const Evaluation& b, const Correspondence& f,
                                      const Implementation& implementation, Exactness exactness) {
  const bool may_overflow = a.may_overflow || b.may_overflow;
  // Scaled values may overflow where the others do not.
  const bool bitwise =
      exactness == Exactness::bitwise && implementation.deterministic && !(f.scaled && may_overflow);
  Comparison comparison;

  // Multiplying A's value by a factor that is not a power of two rounds once more, here.
  const auto allowed = [&](double bound_b, double bound_a, double factor, double expected) {
    if (bitwise) return 0.0;
    return bound_b + std::abs(factor) * bound_a + (is_power_of_two(factor) ? 0 : rounding_of(expected));
  };
  // What underflow may take from a gradient: each of its products loses up to `smallest`, in A and in B, and
  // is then divided by the temperature; two scalings lose as much again. The gradient of a logit may have
  // lost as much before, which its product with an element of `operand` magnifies.
  const auto underflow = [&](Index products, double factor, double Evaluation::*operand) {
    if (!f.scaled) return 0.0;
    const auto lost = [&](const Evaluation& e) {
      return std::max(1.0, 1 / e.options.temperature) * std::max(1.0, operand ? e.*operand : 1.0);
    };
    return static_cast<double>(products + 2) * implementation.smallest *
           (lost(b) + std::abs(factor) * lost(a));
  };

  const auto count = [](const auto& values) { return static_cast<Index>(values.size()); };
  if (a.result.loss.has_value() != b.result.loss.has_value()) {
    comparison.fail("one case has a loss and the other has none.");
    return comparison.outcome();
  }
  if (b.result.loss) {
    const double expected = f.loss * *a.result.loss;
    comparison.equal("loss", *b.result.loss, expected, allowed(b.bound.loss, a.bound.loss, f.loss, expected),
                     may_overflow);
  }
  for (Index t = 0; t < count(b.result.token_loss); ++t) {
    const Index from = source(f.tokens, t);
    const double expected = from < 0 ? 0 : f.token_loss * at(a.result.token_loss, from);
    const double within =
        from < 0 ? 0
                 : allowed(at(b.bound.token_loss, t), at(a.bound.token_loss, from), f.token_loss, expected);
    comparison.equal(fmt::format("token_loss[{}]", t), at(b.result.token_loss, t), expected, within,
                     may_overflow && from >= 0);
  }
  if (!f.gradients) return comparison.outcome();

  std::vector<double> expected;
  // Row `from` of A, as a row of B, into `expected`.
  const auto expect_row = [&](const RowMajorMatrix<double>& m, Index from, double factor, Index cols) {
    expected.assign(static_cast<std::size_t>(cols), 0);
    for (Index h = 0; h < cols && from >= 0; ++h) {
      const double sign = f.hidden_sign.empty() ? 1 : at(f.hidden_sign, h);
      expected[static_cast<std::size_t>(h)] = factor * sign * m(from, source(f.hidden, h));
    }
  };
  const auto compare_row = [&](const char* what, const RowMajorMatrix<double>& m, Index r, double within,
                               double slack, bool overflow) {
    const std::span<const double> got = row_of(m, r);
    if (!bitwise) {
      comparison.equal_rows(fmt::format("{}[{}]", what, r), got, expected, within + slack, overflow);
      return;
    }
    for (std::size_t h = 0; h < got.size(); ++h)
      comparison.equal(fmt::format("{}[{}, {}]", what, r, h), got[h], expected[h], slack);
  };

  for (Index t = 0; t < b.result.student_input_grad.rows(); ++t) {
    const Index from = source(f.tokens, t);
    if (from >= 0 && !(b.judges_input_grad(t) && a.judges_input_grad(from))) continue;
    expect_row(a.result.student_input_grad, from, f.input_grad, b.result.student_input_grad.cols());
    const double within = from < 0
                              ? 0
                              : allowed(at(b.bound.student_input_grad, t),
                                        at(a.bound.student_input_grad, from), f.input_grad, norm(expected));
    compare_row(
        "student_input_grad", b.result.student_input_grad, t, within,
        from < 0 ? 0 : underflow(b.problem.vocab(), f.input_grad, &Evaluation::largest_student_weight),
        may_overflow && from >= 0);
  }
  const bool judged = a.judges_weight_grad() && b.judges_weight_grad();
  for (Index v = 0; v < b.result.student_weight_grad.rows(); ++v) {
    const Index from = source(f.vocab, v);
    if (from >= 0 && !judged) continue;
    expect_row(a.result.student_weight_grad, from, f.weight_grad, b.result.student_weight_grad.cols());
    const double within = from < 0
                              ? 0
                              : allowed(at(b.bound.student_weight_grad, v),
                                        at(a.bound.student_weight_grad, from), f.weight_grad, norm(expected));
    compare_row(
        "student_weight_grad", b.result.student_weight_grad, v, within,
        from < 0 ? 0 : underflow(b.problem.tokens(), f.weight_grad, &Evaluation::largest_student_input),
        may_overflow && from >= 0);
  }
  for (Index v = 0; v < count(b.result.student_bias_grad) && !a.result.student_bias_grad.empty(); ++v) {
    const Index from = source(f.vocab, v);
    if (from >= 0 && !judged) continue;
    const double value = from < 0 ? 0 : f.bias_grad * at(a.result.student_bias_grad, from);
    const double within = from < 0 ? 0
                                   : allowed(at(b.bound.student_bias_grad, v),
                                             at(a.bound.student_bias_grad, from), f.bias_grad, value) +
                                         underflow(b.problem.tokens(), f.bias_grad, nullptr);
    comparison.equal(fmt::format("student_bias_grad[{}]", v), at(b.result.student_bias_grad, v), value,
                     within, may_overflow && from >= 0);
  }
  return comparison.outcome();
}

PropertyOutcome expect_correspondence(const Case& a, const Case& b, const Correspondence& f,
                                      const Implementation& implementation, Exactness exactness) {
  if (auto outcome = lacking(implementation, {&a, &b})) return *outcome;
  return expect_correspondence(Evaluation(a, implementation), Evaluation(b, implementation), f,
                               implementation, exactness);
}

}  // namespace fljsd
