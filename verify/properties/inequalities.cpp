// SPDX-License-Identifier: Apache-2.0
// What limits the divergence of a token: inequalities between exact values, which computed values may break
// by no more than their bounds. Where the check itself computes a limit, its few roundings are allowed for by
// 8u of the limit.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "verify/cases/random.h"
#include "verify/properties/checks.h"
#include "verify/properties/compare.h"

namespace fljsd::checks {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double own_rounding = 8 * 0x1p-53;  // of a limit: at most eight operations

// −beta·log(beta) − (1−beta)·log(1−beta).
double entropy(double beta) {
  return -beta * std::log(beta) - (1 - beta) * std::log1p(-beta);
}

bool inside(const Case& c) {
  return c.options.beta > 0 && c.options.beta < 1;
}

PropertyOutcome endpoint() {
  return not_applicable("it speaks about 0 < beta < 1.");
}

std::string token_name(std::size_t t) {
  return fmt::format("token_loss[{}]", t);
}

// Calls body(t, may_overflow) for each token of evaluations of the same tokens, where every loss is a number
// or infinite; a NaN in one must be one in all.
template <std::size_t Count, class Body>
void for_each_token(const std::array<const Evaluation*, Count>& evaluations, Comparison& comparison,
                    const Body& body) {
  bool may_overflow = false;
  for (const Evaluation* e : evaluations) may_overflow = may_overflow || e->may_overflow;
  for (std::size_t t = 0; t < evaluations[0]->result.token_loss.size(); ++t) {
    std::size_t undefined = 0;
    for (const Evaluation* e : evaluations) undefined += std::isnan(e->result.token_loss[t]);
    if (undefined == 0) {
      body(t, may_overflow);
    } else if (undefined != Count && !may_overflow) {
      comparison.fail(token_name(t) + " is NaN, but with other models or another beta it is not.");
    }
  }
}

}  // namespace

// D >= 0: each KL divergence is, by Jensen's inequality. D <= h(beta) = −beta·log(beta) −
// (1−beta)·log(1−beta) for 0 < beta < 1, because M >= beta·p and M >= (1−beta)·q bound the two logarithms. (D
// is the mutual information between the choice of a model and an entry drawn from it, and h is the entropy of
// the choice.)
PropertyOutcome range(const Case& c, const Implementation& implementation, std::uint64_t) {
  if (auto outcome = lacking(implementation, {&c}, {Feature::token_loss})) return *outcome;
  const Evaluation e(c, implementation);
  const double limit = inside(c) ? entropy(c.options.beta) : infinity;
  Comparison comparison;
  for (std::size_t t = 0; t < e.result.token_loss.size(); ++t) {
    const double d = e.result.token_loss[t], bound = e.bound.token_loss[t];
    if (std::isnan(d)) continue;  // no distribution: other properties speak about that
    comparison.at_most("−" + token_name(t), -d, 0, bound, e.may_overflow);
    comparison.at_most(token_name(t), d, limit, inside(c) ? bound + own_rounding * limit : 0, e.may_overflow);
  }
  return comparison.outcome();
}

// Where no entry has positive probability under both models, M is beta·p where p > 0 and (1−beta)·q where q >
// 0, so that log(p/M) = −log(beta), log(q/M) = −log(1−beta): D = h(beta). It is the maximum, so the gradient
// is 0. At the endpoints the divergence is infinite. The supports are separated by biases of −inf.
PropertyOutcome disjoint_supports(const Case& c, const Implementation& implementation, std::uint64_t seed) {
  const Case valid = with_valid_vocab_only(c);
  const Index vocab = valid.student_weight.shape[0];
  if (vocab < 2) return not_applicable("one entry cannot be divided.");
  for (const Tensor* tensor :
       {&valid.student_input, &valid.student_weight, &valid.teacher_input, &valid.teacher_weight})
    if (!all_finite(*tensor)) return not_applicable("the case is not finite.");
  const Random random(seed, 0x6469736a6f696e74);
  std::vector<double> student(static_cast<std::size_t>(vocab)), teacher(static_cast<std::size_t>(vocab));
  for (Index v = 0; v < vocab; ++v) {
    // Entry 0 is the student's, the last one the teacher's.
    const bool students = v == 0 || (v != vocab - 1 && random.below(v, 2) == 0);
    (students ? teacher : student)[static_cast<std::size_t>(v)] = -infinity;
  }
  Case disjoint = valid;
  disjoint.student_bias = make_tensor(DType::bf16, {vocab}, student);
  disjoint.teacher_bias = make_tensor(DType::bf16, {vocab}, teacher);
  if (auto outcome = lacking(implementation, {&disjoint}, {Feature::token_loss})) return *outcome;

  const Evaluation e(disjoint, implementation);
  if (e.may_overflow) return not_applicable("a logit may overflow.");
  const double expected = inside(c) ? entropy(c.options.beta) : infinity;
  const Problem problem = disjoint.problem();
  Comparison comparison;
  for (Index t = 0; t < problem.tokens(); ++t) {
    const auto i = static_cast<std::size_t>(t);
    const bool counted = is_counted(problem, c.options, t);
    comparison.equal(token_name(i), e.result.token_loss[i], counted ? expected : 0,
                     counted && inside(c) ? e.bound.token_loss[i] + own_rounding * expected : 0);
    if (!inside(c) || e.result.student_input_grad.size() == 0) continue;
    const std::span<const double> row = row_of(e.result.student_input_grad, t);
    comparison.equal_rows(fmt::format("student_input_grad[{}]", t), row, std::vector<double>(row.size()),
                          e.bound.student_input_grad[i]);
  }
  return comparison.outcome();
}

// The student uniform on the first a entries, the teacher on the first b, a != b. Then q, p and M are
// constant on the entries that both have, where M = beta/b + (1−beta)/a, and on those that only one has, so
// that
//
//   KL(q‖M) = s·log((1/a)/M) + (1−s)·log(1/(1−beta)),   s = min(a, b)/a the share of q that both have,
//
// and KL(p‖M) likewise with b and beta. dD/dx_v = (1−beta)·q_v·(log(q_v/M_v) − KL(q‖M)). Equal logits come
// from weights of 0 and biases of 0 and −inf; their exponentials are exactly 1. Other properties hold as well
// for the answers that belong to 1−beta, or to the models exchanged; this one does not.
PropertyOutcome nested_uniform_supports(const Case& c, const Implementation& implementation,
                                        std::uint64_t seed) {
  const Case valid = with_valid_vocab_only(c);
  const Index vocab = valid.student_weight.shape[0];
  if (vocab < 2) return not_applicable("two nested sets need two entries.");
  if (!all_finite(valid.student_input) || !all_finite(valid.teacher_input))
    return not_applicable("the inputs are not finite.");
  const Random random(seed, 0x6e6573746564);
  const Index larger = 2 + random.below(0, vocab - 1), smaller = 1 + random.below(1, larger - 1);
  const bool student_is_smaller = random.below(2, 2) == 0;
  const Index a = student_is_smaller ? smaller : larger, b = student_is_smaller ? larger : smaller;

  Case nested = valid;
  const auto zeros = [](const Tensor& tensor) {
    return make_tensor(tensor.dtype, tensor.shape,
                       std::vector<double>(static_cast<std::size_t>(tensor.elements())));
  };
  nested.student_weight = zeros(valid.student_weight);
  nested.teacher_weight = zeros(valid.teacher_weight);
  const auto support = [&](Index size) {
    std::vector<double> bias(static_cast<std::size_t>(vocab), -infinity);
    std::fill_n(bias.begin(), size, 0.0);
    return make_tensor(DType::bf16, {vocab}, bias);
  };
  nested.student_bias = support(a);
  nested.teacher_bias = support(b);
  if (auto outcome = lacking(implementation, {&nested}, {Feature::token_loss})) return *outcome;

  // The roles of (p, b, beta) and (q, a, 1−beta) are the same; `weight` is the model's own.
  const double beta = c.options.beta, size_a = static_cast<double>(a), size_b = static_cast<double>(b);
  const double mixture = beta / size_b + (1 - beta) / size_a;
  const auto kl_to_mixture = [&](double size, double other, double weight) {
    const double share = std::min(size, other) / size;
    return share * -std::log(size * mixture) + (share < 1 ? (1 - share) * -std::log(weight) : 0);
  };
  double expected = 0;
  if (beta == 0) {
    expected = a >= b ? std::log(size_a / size_b) : infinity;  // KL(p‖q)
  } else if (beta == 1) {
    expected = b >= a ? std::log(size_b / size_a) : infinity;  // KL(q‖p)
  } else {
    expected =
        beta * kl_to_mixture(size_b, size_a, beta) + (1 - beta) * kl_to_mixture(size_a, size_b, 1 - beta);
  }
  // Parts of the sums above are at most log(vocab) + |log beta| + |log(1−beta)| each.
  const double parts = std::log(static_cast<double>(vocab)) +
                       (inside(c) ? std::abs(std::log(beta)) + std::abs(std::log1p(-beta)) : 0);

  const Evaluation e(nested, implementation);
  if (e.may_overflow) return not_applicable("a logit may overflow.");
  const Problem problem = nested.problem();
  Comparison comparison;
  for (Index t = 0; t < problem.tokens(); ++t) {
    const auto i = static_cast<std::size_t>(t);
    const bool counted = is_counted(problem, c.options, t);
    comparison.equal(token_name(i), e.result.token_loss[i], counted ? expected : 0,
                     counted && expected != infinity ? e.bound.token_loss[i] + own_rounding * parts : 0);
  }
  if (expected == infinity || e.result.student_bias_grad.empty()) return comparison.outcome();

  // Every counted token has the same dD/dx.
  const auto count = static_cast<double>(count_tokens(problem, c.options));
  const double scale =
      count == 0
          ? 0
          : count / static_cast<double>(reduction_divisor(c.options, count_tokens(problem, c.options))) /
                c.options.temperature;
  for (Index v = 0; v < vocab; ++v) {
    const auto i = static_cast<std::size_t>(v);
    double gradient = 0;
    if (beta == 0) gradient = (v < a ? 1 / size_a : 0) - (v < b ? 1 / size_b : 0);
    if (inside(c) && v < a) {
      const double score = v < b ? -std::log(size_a * mixture) : -std::log1p(-beta);
      gradient = (1 - beta) / size_a * (score - kl_to_mixture(size_a, size_b, 1 - beta));
    }
    comparison.equal(fmt::format("student_bias_grad[{}]", v), e.result.student_bias_grad[i], scale * gradient,
                     e.bound.student_bias_grad[i] + own_rounding * scale * (2 + parts));
  }
  return comparison.outcome();
}

// D_beta <= beta·(1−beta)·(KL(p‖q) + KL(q‖p)): log is concave, so −log M <= −beta·log p − (1−beta)·log q, and
// KL(p‖M) <= (1−beta)·KL(p‖q), KL(q‖M) <= beta·KL(q‖p). The two divergences are the implementation's own, at
// the endpoints.
PropertyOutcome below_symmetrised_kl(const Case& c, const Implementation& implementation, std::uint64_t) {
  if (!inside(c)) return endpoint();
  const Case at_0 = with_beta(c, 0), at_1 = with_beta(c, 1);
  if (auto outcome = lacking(implementation, {&c, &at_0, &at_1}, {Feature::token_loss})) return *outcome;
  const Evaluation e(c, implementation), e0(at_0, implementation), e1(at_1, implementation);
  const double weight = c.options.beta * (1 - c.options.beta);
  Comparison comparison;
  for_each_token(std::array{&e, &e0, &e1}, comparison, [&](std::size_t t, bool may_overflow) {
    const double limit = weight * (e0.result.token_loss[t] + e1.result.token_loss[t]);
    const double allowed = limit == infinity ? 0
                                             : e.bound.token_loss[t] + own_rounding * limit +
                                                   weight * (e0.bound.token_loss[t] + e1.bound.token_loss[t]);
    comparison.at_most(token_name(t), e.result.token_loss[t], limit, allowed, may_overflow);
  });
  return comparison.outcome();
}

// D_beta = H(M) − beta·H(p) − (1−beta)·H(q) is concave in beta: the entropy H is concave, M is linear in
// beta, and so is the rest. Checked at the middle of an interval: D_m >= (D_l + D_r)/2; l, m, r are
// sixteenths, so the middle is exact.
PropertyOutcome concave_in_beta(const Case& c, const Implementation& implementation, std::uint64_t seed) {
  const Random random(seed, 0x636f6e63617665);
  const Index middle = 2 + random.below(0, 13);                                       // 2 .. 14
  const Index width = 1 + random.below(1, std::min<Index>(middle, 16 - middle) - 1);  // stays inside
  const auto sixteenths = [&](Index n) { return with_beta(c, static_cast<double>(n) / 16); };
  const Case l = sixteenths(middle - width), m = sixteenths(middle), r = sixteenths(middle + width);
  if (auto outcome = lacking(implementation, {&l, &m, &r}, {Feature::token_loss})) return *outcome;
  const Evaluation left(l, implementation), mid(m, implementation), right(r, implementation);
  Comparison comparison;
  for_each_token(std::array{&left, &mid, &right}, comparison, [&](std::size_t t, bool may_overflow) {
    const double chord = (left.result.token_loss[t] + right.result.token_loss[t]) / 2;
    comparison.at_most("the chord over " + token_name(t), chord, mid.result.token_loss[t],
                       mid.bound.token_loss[t] + own_rounding * chord +
                           (left.bound.token_loss[t] + right.bound.token_loss[t]) / 2,
                       may_overflow);
  });
  return comparison.outcome();
}

// D_beta <= beta·KL(p‖q) and D_beta <= (1−beta)·KL(q‖p): D is concave in beta and 0 at both ends, where its
// slopes are KL(p‖q) and −KL(q‖p), so that it lies below its tangents there. (beta·KL(p‖q) = D_beta +
// KL(M‖q), exactly.) It ties the endpoints' convention to what is inside.
PropertyOutcome slopes_at_the_ends(const Case& c, const Implementation& implementation, std::uint64_t) {
  if (!inside(c)) return endpoint();
  const double beta = c.options.beta;
  const Case at_0 = with_beta(c, 0), at_1 = with_beta(c, 1);
  if (auto outcome = lacking(implementation, {&c, &at_0, &at_1}, {Feature::token_loss})) return *outcome;
  const Evaluation e(c, implementation), e0(at_0, implementation), e1(at_1, implementation);
  Comparison comparison;
  for_each_token(std::array{&e, &e0, &e1}, comparison, [&](std::size_t t, bool may_overflow) {
    const auto below = [&](double weight, const Evaluation& end) {
      const double limit = weight * end.result.token_loss[t];
      const double allowed =
          limit == infinity ? 0
                            : e.bound.token_loss[t] + weight * end.bound.token_loss[t] + own_rounding * limit;
      comparison.at_most(token_name(t), e.result.token_loss[t], limit, allowed, may_overflow);
    };
    below(beta, e0);
    below(1 - beta, e1);
  });
  return comparison.outcome();
}

// The square root of D at beta = ½ is a metric (Endres and Schindelin, IEEE Trans. Inf. Theory 49, 2003). The
// third model is the teacher with its vocabulary rotated. With each D within its bound, D(a, c) <= (√(D(a, b)
// + bound) + √(D(b, c) + bound))² + bound.
PropertyOutcome triangle_inequality(const Case& c, const Implementation& implementation, std::uint64_t seed) {
  const Case ab = with_beta(with_valid_vocab_only(c), 0.5);
  const Index vocab = ab.student_weight.shape[0];
  const Case third = with_vocab(ab, permutation(vocab, seed));
  Case ac = ab, bc = ab;
  for (Case* with_third : {&ac, &bc}) {
    with_third->teacher_weight = third.teacher_weight;
    with_third->teacher_bias = third.teacher_bias;
  }
  bc.student_input = ab.teacher_input;
  bc.student_weight = ab.teacher_weight;
  bc.student_bias = ab.teacher_bias;
  if (auto outcome = lacking(implementation, {&ab, &bc, &ac}, {Feature::token_loss})) return *outcome;
  const Evaluation e_ab(ab, implementation), e_bc(bc, implementation), e_ac(ac, implementation);
  Comparison comparison;
  // A student without a distribution makes two of the three NaN.
  for (std::size_t t = 0; t < e_ab.result.token_loss.size(); ++t) {
    const auto upper = [&](const Evaluation& e) {
      return std::sqrt(std::max(0.0, e.result.token_loss[t] + e.bound.token_loss[t]));
    };
    if (std::isnan(e_ab.result.token_loss[t]) || std::isnan(e_bc.result.token_loss[t]) ||
        std::isnan(e_ac.result.token_loss[t]))
      continue;
    const double direct = e_ac.result.token_loss[t];
    const double detour = std::pow(upper(e_ab) + upper(e_bc), 2);
    comparison.at_most(token_name(t) + " of the third pair", direct, detour,
                       e_ac.bound.token_loss[t] + own_rounding * detour,
                       e_ab.may_overflow || e_bc.may_overflow || e_ac.may_overflow);
  }
  return comparison.outcome();
}

}  // namespace fljsd::checks
