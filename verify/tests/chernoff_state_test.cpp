// SPDX-License-Identifier: Apache-2.0
// The mergeable states: any row, any order, any pieces, within the stated bound of the specification.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "reference/chernoff.h"
#include "reference/chernoff/kl_state.h"
#include "verify/tests/chernoff_rows.h"

namespace fljsd {
namespace {

using namespace chernoff_tests;

constexpr PhaseMethod methods[] = {PhaseMethod::sincos, PhaseMethod::recurrence, PhaseMethod::stride4,
                                   PhaseMethod::product_basis};
constexpr MergeSum merges[] = {MergeSum::plain, MergeSum::compensated};

// A state that takes one entry at a time is a sweep with tiles of one entry. Its float32 functions are those
// of libm: e^x to 1 ulp (2u), sine and cosine to 1 ulp of a result below 1 (u), of an angle of at most π in
// which 2π and the product are rounded (2πu).
OnePassErrorBound entrywise_bound(double beta, PhaseMethod method, MergeSum merge, Index vocab,
                                  double largest_gap = 0) {
  static std::map<std::tuple<double, PhaseMethod, MergeSum, Index, double>, OnePassErrorBound> known;
  const auto key = std::tuple(beta, method, merge, vocab, largest_gap);
  if (!known.contains(key)) {
    const OnePassPlan plan({.beta = beta, .phases = method, .merge = merge, .tile = 1, .lanes = 1});
    known.emplace(
        key, one_pass_error_bound(plan, vocab, largest_gap, {.exp2 = 0x1p-23, .sine_cosine = 8 * 0x1p-24}));
  }
  return known.at(key);
}

// The default rule and its largest error for any row, in exact arithmetic.
struct JudgedRule {
  explicit JudgedRule(double beta)
      : rule(make_quadrature(WeightKind::minimax, beta, 12, 32)),
        divergence(worst_case(Kernel::divergence, rule).bound),
        student_kl(worst_case(Kernel::student_kl, rule).bound),
        teacher_kl(worst_case(Kernel::teacher_kl, rule).bound) {}

  Quadrature rule;
  double divergence, student_kl, teacher_kl;
};

struct Errors {
  double divergence, scaled_student_kl, scaled_teacher_kl;
};
template <class Result>
Errors errors(const Result& result, const Truth& exact, double beta) {
  return {std::abs(static_cast<double>(result.divergence) - exact.divergence),
          (1 - beta) * std::abs(static_cast<double>(result.student_kl) - exact.student_kl),
          beta * std::abs(static_cast<double>(result.teacher_kl) - exact.teacher_kl)};
}

// In float64 there is no wider type for differences of maxima, which reach 2e4 in the families with offsets:
// four roundings of such a number, times the highest frequency (below 3) at which it turns a phase.
constexpr double float64_offsets = 4 * 0x1p-53 * 2e4 * 3;

// Catches: a state that is right for ordinary rows only: rising maxima, offsets of 1e4, excluded tokens,
// disjoint supports, peaks of 200 nats, gaps of 1e4. In double, where the rule's own error is what must show.
TEST(ChernoffState, EveryFamilyIsWithinTheBound) {
  constexpr Index vocab = 48;
  for (const double beta : betas) {
    const JudgedRule judged(beta);
    // 2^-29 of the float32 error of the worst method, plain sums
    const OnePassErrorBound plain = entrywise_bound(beta, PhaseMethod::recurrence, MergeSum::plain, vocab);
    const double rounding =
        0x1p-29 * std::max({plain.divergence, plain.scaled_student_kl, plain.scaled_teacher_kl}) +
        float64_offsets;
    for (const RowPair& row : all_families(vocab, 11)) {
      const Truth exact = truth<Real100>(row.x64(), row.y64(), beta);
      for (const PhaseMethod method : methods) {
        const auto result = finalise(swept<double>(row.x64(), row.y64(), 12, 32, method).sums(), judged.rule);
        const Errors error = errors(result, exact, beta);
        EXPECT_LE(error.divergence, judged.divergence + rounding)
            << row.family << " beta " << beta << " " << name(method);
        EXPECT_LE(error.scaled_student_kl, judged.student_kl + rounding) << row.family << " beta " << beta;
        EXPECT_LE(error.scaled_teacher_kl, judged.teacher_kl + rounding) << row.family << " beta " << beta;
      }
    }
  }
}

// Catches: the same in float32 arithmetic, where a phase taken before the maxima are subtracted, or a
// rescaling that also turns the phases, loses everything at an offset of 1e4.
TEST(ChernoffState, EveryFamilyIsWithinTheFloat32Bound) {
  constexpr Index vocab = 300;
  for (const double beta : {0.01, 0.5, 0.9}) {
    const Quadrature rule = make_quadrature(WeightKind::minimax, beta, 12, 32);
    for (const RowPair& row : all_families(vocab, 12)) {
      const Truth exact = truth<double>(row.x64(), row.y64(), beta);
      for (const PhaseMethod method : methods) {
        for (const MergeSum merge : merges) {
          const OnePassErrorBound bound = entrywise_bound(beta, method, merge, vocab);
          const auto result =
              finalise(swept<float>(row.x64(), row.y64(), 12, 32, method, merge).sums(), rule);
          const Errors error = errors(result, exact, beta);
          EXPECT_LE(error.divergence, bound.divergence)
              << row.family << " beta " << beta << " " << name(method);
          EXPECT_LE(error.scaled_student_kl, bound.scaled_student_kl) << row.family << " beta " << beta;
          EXPECT_LE(error.scaled_teacher_kl, bound.scaled_teacher_kl) << row.family << " beta " << beta;
        }
      }
    }
  }
}

// Distributes entries over states and merges them two by two, both in an order that RapidCheck draws.
template <class State, class Make, class Add>
State merged_at_random(std::size_t vocab, const Make& make, const Add& add) {
  const std::size_t pieces = static_cast<std::size_t>(*rc::gen::element(1, 2, 3, 7, 20));
  std::vector<State> states;
  for (std::size_t i = 0; i < pieces; ++i) states.push_back(make());
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const Random random(seed, 0), order(seed, 1), tree(seed, 2);
  std::vector<std::size_t> entries(vocab);
  std::iota(entries.begin(), entries.end(), 0);
  for (std::size_t v = vocab; v > 1; --v) {
    std::swap(entries[v - 1],
              entries[static_cast<std::size_t>(order.below(static_cast<Index>(v), static_cast<Index>(v)))]);
  }
  for (std::size_t i = 0; i < vocab; ++i) {  // some pieces may stay empty
    const Index piece = random.below(static_cast<Index>(i), static_cast<Index>(pieces));
    add(states[static_cast<std::size_t>(piece)], entries[i]);
  }
  for (Index i = 0; states.size() > 1; ++i) {
    const auto count = static_cast<Index>(states.size());
    const auto from = static_cast<std::size_t>(tree.below(2 * i, count));
    const State taken = states[from];
    states.erase(states.begin() + static_cast<std::ptrdiff_t>(from));
    states[static_cast<std::size_t>(tree.below(2 * i + 1, count - 1))].merge(taken);
  }
  return states.front();
}

template <class Real>
void check_merging(double rounding_scale) {
  constexpr Index vocab = 40;
  const auto rows = all_families(vocab, *rc::gen::inRange<std::uint64_t>(0, 1000));
  const RowPair row = rows[static_cast<std::size_t>(
      *rc::gen::resize(100, rc::gen::inRange(0, static_cast<int>(rows.size()))))];
  const double beta = *rc::gen::element(1e-3, 0.1, 0.5, 0.9);
  const PhaseMethod method = *rc::gen::element(methods[0], methods[1], methods[2], methods[3]);
  const MergeSum merge = *rc::gen::element(MergeSum::plain, MergeSum::compensated);
  static std::map<double, JudgedRule> rules;
  if (!rules.contains(beta)) rules.emplace(beta, JudgedRule(beta));
  const auto state = merged_at_random<ChernoffState<Real>>(
      vocab, [&] { return ChernoffState<Real>(12, 32, method, merge); },
      [&](ChernoffState<Real>& piece, std::size_t v) {
        piece.add(static_cast<Real>(row.x[v]), static_cast<Real>(row.y[v]));
      });
  const Errors error =
      errors(finalise(state.sums(), rules.at(beta).rule), truth<double>(row.x64(), row.y64(), beta), beta);
  // Merging two states costs no more than taking one entry: one scaling and one addition.
  const OnePassErrorBound once = entrywise_bound(beta, method, merge, 2 * vocab);
  const JudgedRule& rule = rules.at(beta);
  const double offsets = std::is_same_v<Real, double> ? float64_offsets : 0;
  RC_ASSERT(error.divergence <= rule.divergence + rounding_scale * once.divergence + offsets);
  RC_ASSERT(error.scaled_student_kl <= rule.student_kl + rounding_scale * once.scaled_student_kl + offsets);
  RC_ASSERT(error.scaled_teacher_kl <= rule.teacher_kl + rounding_scale * once.scaled_teacher_kl + offsets);
}

// Catches: a merge that depends on order: phases of the two states referred to different constants, maxima of
// one state applied to the sums of the other, an empty or one-sided state that brings NaN.
RC_GTEST_PROP(ChernoffState, AnySplitAndAnyMergeOrderInFloat32, ()) {
  check_merging<float>(1);
}
// 2^-29 turns u of float32 into u of float64; 8, because compensated sums of float64 are rounded to one
// number when rescaled.
RC_GTEST_PROP(ChernoffState, AnySplitAndAnyMergeOrderInFloat64, ()) {
  check_merging<double>(8 * 0x1p-29);
}

// Catches: a NaN from 0·e^{i∞} or −inf − (−inf) where a model excludes tokens, and the wrong answer for a row
// without a distribution.
TEST(ChernoffState, ExcludedTokensAndRowsWithoutDistribution) {
  const Quadrature rule = make_quadrature(WeightKind::minimax, 0.25, 12, 32);
  const auto run = [&](std::vector<double> x, std::vector<double> y) {
    return finalise(swept<double>(x, y, 12, 32).sums(), rule);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  // Disjoint supports: D = h(beta) and kappa = 0, exactly, since no term of Φ exists.
  const auto disjoint = run({0, -infinity, 1}, {-infinity, 3, -infinity});
  EXPECT_EQ(disjoint.divergence,
            finalise(ChernoffSums<double>{true, 0, 0, 1, 1, 0, 0, {}, {}}, rule).divergence);
  EXPECT_EQ(disjoint.kappa, 0);
  // A token that both exclude changes nothing.
  const auto with = run({-infinity, 0.5, -infinity, 2}, {-infinity, 1, -infinity, 0}),
             without = run({0.5, 2}, {1, 0});
  EXPECT_EQ(with.divergence, without.divergence);
  EXPECT_EQ(with.kappa, without.kappa);
  // One token, whatever its logits.
  EXPECT_LE(run({1e4}, {-3}).divergence, 1e-15);
  for (const auto& [x, y] :
       std::vector<std::pair<std::vector<double>, std::vector<double>>>{{{nan, 0}, {0, 0}},
                                                                        {{0, 0}, {0, nan}},
                                                                        {{infinity, 0}, {0, 0}},
                                                                        {{0, 0}, {infinity, infinity}},
                                                                        {{-infinity, -infinity}, {0, 0}},
                                                                        {{0, 0}, {-infinity, -infinity}},
                                                                        {{}, {}}}) {
    const auto result = run(x, y);
    EXPECT_TRUE(std::isnan(result.divergence) && std::isnan(result.kappa) && std::isnan(result.student_kl) &&
                std::isnan(result.teacher_kl));
  }
  // NaN in one of two merged states.
  auto good = swept<double>(std::vector<double>{0.0}, std::vector<double>{0.0}, 12, 32);
  good.merge(swept<double>(std::vector<double>{nan}, std::vector<double>{0.0}, 12, 32));
  EXPECT_TRUE(std::isnan(finalise(good.sums(), rule).divergence));
}

// Catches: rescaling that turns the phases. When both maxima rise, the phases stay referred to the first
// finite entry and every Φ_k is multiplied by the same real number.
TEST(ChernoffState, ARisingMaximumIsARealFactor) {
  ChernoffState<double> state(5, 32);
  state.add(-100, -130);
  state.add(-101, -128.5);
  const auto before = state.sums();
  state.add(0, -infinity);  // raises max_x, adds nothing to Φ
  const auto after = state.sums();
  EXPECT_EQ(after.phase_x, before.phase_x);
  EXPECT_EQ(after.phase_y, before.phase_y);
  for (std::size_t k = 0; k <= 5; ++k) {
    EXPECT_LE(std::abs(after.real[k] - std::exp(-50.0) * before.real[k]), 1e-15 * std::exp(-50.0));
    EXPECT_LE(std::abs(after.imag[k] - std::exp(-50.0) * before.imag[k]), 1e-15 * std::exp(-50.0));
  }
}

double largest_gap(const std::vector<double>& b) {
  const double top = *std::max_element(b.begin(), b.end());
  double gap = 0;
  for (const double value : b) {
    if (value > -infinity) gap = std::max(gap, top - value);
  }
  return gap;
}

double exact_kl(const std::vector<double>& a, const std::vector<double>& b) {
  return truth<Real100>(b, a, 0).divergence;  // beta = 0: KL(p‖q), p from the second argument
}

// Catches: a shift of T by the wrong maximum or the wrong sum, KL the wrong way round, and a finite answer
// where the divergence is infinite.
TEST(KlState, EveryFamilyIsWithinTheBound) {
  for (const RowPair& row : all_families(48, 13)) {
    const double exact = exact_kl(row.x64(), row.y64()), gap = largest_gap(row.y64());
    KlState<double> wide;
    for (std::size_t v = 0; v < row.x.size(); ++v) wide.add(row.x[v], row.y[v]);
    const double plain = entrywise_bound(1, PhaseMethod::sincos, MergeSum::plain, 48, gap).divergence;
    if (std::isinf(exact)) {
      EXPECT_EQ(finalise(wide.sums()).kl, infinity) << row.family;
    } else {
      EXPECT_LE(std::abs(finalise(wide.sums()).kl - exact), 0x1p-29 * plain) << row.family;
    }
    for (const MergeSum merge : merges) {
      KlState<float> state(merge);
      for (std::size_t v = 0; v < row.x.size(); ++v) state.add(row.x[v], row.y[v]);
      const double bound = entrywise_bound(1, PhaseMethod::sincos, merge, 48, gap).divergence;
      const double error = std::isinf(exact) ? (finalise(state.sums()).kl == infinity ? 0 : NAN)
                                             : std::abs(finalise(state.sums()).kl - exact);
      EXPECT_LE(error, bound) << row.family << " " << name(merge);
    }
  }
}

// Catches: merges of KL states that depend on order.
RC_GTEST_PROP(KlState, AnySplitAndAnyMergeOrder, ()) {
  constexpr Index vocab = 40;
  const auto rows = all_families(vocab, *rc::gen::inRange<std::uint64_t>(0, 1000));
  const RowPair row = rows[static_cast<std::size_t>(
      *rc::gen::resize(100, rc::gen::inRange(0, static_cast<int>(rows.size()))))];
  const MergeSum merge = *rc::gen::element(MergeSum::plain, MergeSum::compensated);
  const auto state = merged_at_random<KlState<float>>(
      vocab, [&] { return KlState<float>(merge); },
      [&](KlState<float>& piece, std::size_t v) { piece.add(row.x[v], row.y[v]); });
  const double exact = truth<double>(row.y64(), row.x64(), 0).divergence, kl = finalise(state.sums()).kl;
  if (std::isinf(exact)) {
    RC_ASSERT(kl == infinity);
  } else {
    const OnePassErrorBound bound =
        entrywise_bound(1, PhaseMethod::sincos, merge, 2 * vocab, largest_gap(row.y64()));
    RC_ASSERT(std::abs(kl - exact) <= bound.divergence);
  }
}

}  // namespace
}  // namespace fljsd
