// SPDX-License-Identifier: Apache-2.0
// The first sweep in float32, tile by tile: every arithmetic variant within its derived bound.
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "reference/chernoff.h"
#include "reference/chernoff/float_functions.h"
#include "verify/tests/chernoff_rows.h"

namespace fljsd {
namespace {

using namespace chernoff_tests;

constexpr double u = 0x1p-24;
constexpr PhaseMethod methods[] = {PhaseMethod::sincos, PhaseMethod::recurrence, PhaseMethod::stride4,
                                   PhaseMethod::product_basis};

std::string describe(const RowPair& row, const OnePassConfig& config) {
  return row.family + ", beta " + std::to_string(config.beta) + ", " + name(config.phases) + ", " +
         name(config.merge) + ", tile " + std::to_string(config.tile) + ", lanes " +
         std::to_string(config.lanes) + ", headroom " + std::to_string(config.headroom);
}

void expect_within(const OnePassErrorBound& bound, const OnePassRow& result, const Truth& exact,
                   const OnePassConfig& config, const RowPair& row) {
  const double beta = config.beta;
  EXPECT_LE(std::abs(result.divergence - exact.divergence), bound.divergence) << describe(row, config);
  EXPECT_LE((1 - beta) * std::abs(result.student_kl - exact.student_kl), bound.scaled_student_kl)
      << describe(row, config);
  EXPECT_LE(beta * std::abs(result.teacher_kl - exact.teacher_kl), bound.scaled_teacher_kl)
      << describe(row, config);
}

// Catches: a wrong coefficient or a lost term of the exponential. Every 1021st float32 number of the range is
// tried, against the double function; its error is at most 2u, as float_functions.h derives.
TEST(ChernoffSweep, ExponentialIsAccurate) {
  for (std::uint32_t bits = 0; bits < std::bit_cast<std::uint32_t>(126.0f); bits += 1021) {
    for (const float sign : {1.0f, -1.0f}) {
      const float a = sign * std::bit_cast<float>(bits);
      const double exact = std::exp2(static_cast<double>(a));
      EXPECT_LE(std::abs(exp2_float(a) - exact), 2 * u * exact) << a;
    }
  }
  EXPECT_EQ(exp2_float(0), 1);
  EXPECT_EQ(exp2_float(-126), 0x1p-126f);
  EXPECT_EQ(exp2_float(-127), 0);
  EXPECT_EQ(exp2_float(-std::numeric_limits<float>::infinity()), 0);
}

// Catches: a wrong quadrant or sign of the phases, or a lost term.
TEST(ChernoffSweep, SineAndCosineAreAccurate) {
  for (std::uint32_t bits = 0; bits <= std::bit_cast<std::uint32_t>(0.5f); bits += 509) {
    for (const float sign : {1.0f, -1.0f}) {
      const float turns = sign * std::bit_cast<float>(bits);
      const double angle = 2 * std::numbers::pi * turns;
      const SineCosine value = sine_cosine_of_turns(turns);
      EXPECT_LE(std::abs(value.sine - std::sin(angle)), 2 * u) << turns;
      EXPECT_LE(std::abs(value.cosine - std::cos(angle)), 2 * u) << turns;
    }
  }
  EXPECT_EQ(sine_cosine_of_turns(0).sine, 0);
  EXPECT_EQ(sine_cosine_of_turns(0).cosine, 1);
}

// Catches: any arithmetic variant that errs more than its derivation allows, on any kind of row: a recurrence
// that starts wrong, a moment of the product basis at the wrong place, a tail of a tile that is not masked, a
// rescaled low part.
TEST(ChernoffSweep, EveryVariantIsWithinItsBoundOnEveryFamily) {
  constexpr Index vocab = 1003;  // no multiple of any tile
  const auto rows = all_families(vocab, 21);
  for (const double beta : {1e-3, 0.3, 0.5, 0.99}) {
    std::vector<Truth> exact;
    for (const RowPair& row : rows) exact.push_back(truth<double>(row.x64(), row.y64(), beta));
    for (const PhaseMethod method : methods) {
      for (const auto& [merge, tile, lanes, headroom] :
           {std::tuple(MergeSum::compensated, 160, 4, 0.0), std::tuple(MergeSum::plain, 160, 4, 0.0),
            std::tuple(MergeSum::compensated, 64, 16, 20.0), std::tuple(MergeSum::plain, 7, 1, 60.0)}) {
        const OnePassPlan plan({.beta = beta,
                                .phases = method,
                                .merge = merge,
                                .tile = tile,
                                .lanes = lanes,
                                .headroom = headroom});
        const OnePassErrorBound bound = one_pass_error_bound(plan, vocab);
        for (std::size_t i = 0; i < rows.size(); ++i) {
          expect_within(bound, one_pass_row(rows[i].x, rows[i].y, plan), exact[i], plan.config(), rows[i]);
        }
      }
    }
  }
}

// Catches: an error that grows with the vocabulary beyond what the bound says, at the published vocabulary.
TEST(ChernoffSweep, FullVocabularyIsWithinTheBound) {
  constexpr Index vocab = 128256;
  for (const RowPair& row : all_families(vocab, 22)) {
    if (row.family != "saturated" && row.family != "kaiming-like" && row.family != "two levels" &&
        row.family != "rising" && row.family != "offsets") {
      continue;
    }
    const Truth exact = truth<double>(row.x64(), row.y64(), 0.5);
    for (const MergeSum merge : {MergeSum::plain, MergeSum::compensated}) {
      const OnePassPlan plan({.merge = merge});
      expect_within(one_pass_error_bound(plan, vocab), one_pass_row(row.x, row.y, plan), exact, plan.config(),
                    row);
    }
  }
}

// Catches: a frequency above 12 that no variant but the product basis avoids, other weights and periods, one
// frequency.
TEST(ChernoffSweep, OtherRulesAreWithinTheirBounds) {
  constexpr Index vocab = 400;
  const auto rows = all_families(vocab, 23);
  for (const auto& [last, period, kind] :
       {std::tuple(1, 18.0, WeightKind::minimax), std::tuple(2, 20.0, WeightKind::exact_at_equality),
        std::tuple(4, 20.0, WeightKind::minimax), std::tuple(5, 21.0, WeightKind::trapezoid),
        std::tuple(9, 28.5, WeightKind::minimax), std::tuple(25, 40.0, WeightKind::exact_at_equality)}) {
    for (const PhaseMethod method : methods) {
      if (method == PhaseMethod::product_basis && last > 12) continue;
      const OnePassPlan plan(
          {.beta = 0.4, .last_frequency = last, .period = period, .weights = kind, .phases = method});
      const OnePassErrorBound bound = one_pass_error_bound(plan, vocab);
      for (const RowPair& row : rows) {
        expect_within(bound, one_pass_row(row.x, row.y, plan), truth<double>(row.x64(), row.y64(), 0.4),
                      plan.config(), row);
      }
    }
  }
}

// Catches: arithmetic in which equal logits do not give equal sums bit for bit (u·u fused into one sum and
// rounded in another). D of identical rows must be 0 up to the float64 rounding of the rule, which is exact
// there, with any variant.
TEST(ChernoffSweep, IdenticalRowsAreExact) {
  for (const RowPair& row : all_families(500, 24)) {
    for (const PhaseMethod method : methods) {
      for (const MergeSum merge : {MergeSum::plain, MergeSum::compensated}) {
        for (const double beta : {0.01, 0.5, 0.9}) {
          static std::map<std::tuple<PhaseMethod, MergeSum, double>, OnePassPlan> plans;
          const auto key = std::tuple(method, merge, beta);
          if (!plans.contains(key)) {
            plans.emplace(key, OnePassPlan({.beta = beta, .phases = method, .merge = merge}));
          }
          const OnePassRow result = one_pass_row(row.x, row.x, plans.at(key));
          EXPECT_LE(result.divergence, 1e-14) << row.family << " " << name(method);
          EXPECT_LE(result.student_kl, 1e-14) << row.family << " " << name(method);
        }
      }
    }
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

// Catches: an endpoint taken the wrong way round, a finite value where the KL is infinite, and a tile that is
// masked wrongly.
TEST(ChernoffSweep, EndpointsAreWithinTheirBound) {
  constexpr Index vocab = 1003;
  for (const RowPair& row : all_families(vocab, 25)) {
    for (const double beta : {0.0, 1.0}) {
      const double gap = largest_gap(beta == 0 ? row.x64() : row.y64());
      const double exact = truth<double>(row.x64(), row.y64(), beta).divergence;
      for (const MergeSum merge : {MergeSum::plain, MergeSum::compensated}) {
        const OnePassPlan plan({.beta = beta, .merge = merge});
        const OnePassRow result = one_pass_row(row.x, row.y, plan);
        EXPECT_TRUE(std::isnan(result.kappa));
        EXPECT_EQ(result.divergence, beta == 0 ? result.teacher_kl : result.student_kl);
        if (std::isinf(exact)) {
          EXPECT_EQ(result.divergence, exact) << row.family;
        } else {
          EXPECT_LE(std::abs(result.divergence - exact), one_pass_error_bound(plan, vocab, gap).divergence)
              << describe(row, plan.config());
        }
      }
    }
  }
}

// Catches: normalisers whose two parts do not add up, or whose sum was formed in float32.
TEST(ChernoffSweep, LogSumExpIsWithinItsBound) {
  constexpr Index vocab = 1003;
  for (const double beta : {0.0, 0.5, 1.0}) {
    const OnePassPlan plan({.beta = beta});
    const double bound = one_pass_error_bound(plan, vocab).log_sum;
    for (const RowPair& row : all_families(vocab, 26)) {
      const OnePassRow result = one_pass_row(row.x, row.y, plan);
      const auto check = [&](const std::vector<float>& logits, const LogSumExp& lse) {
        double sum = 0;
        for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - lse.max);
        EXPECT_LE(std::abs(std::log(sum) - lse.log_sum), 1.01 * bound) << row.family;
      };
      check(row.x, result.student);
      check(row.y, result.teacher);
    }
  }
}

// Catches: a row without a distribution that gets a number, and a valid row spoilt by an excluded token.
TEST(ChernoffSweep, RowsWithoutDistributionAreNaN) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const double beta : {0.0, 0.5, 1.0}) {
    const OnePassPlan plan({.beta = beta, .tile = 2});
    const std::vector<float> good = {0, 1, -1, 0.5f, 2};
    for (const std::vector<float>& bad :
         {std::vector<float>{0, 0, 0, nan, 0}, {0, 0, 0, 0, inf}, {-inf, -inf, -inf, -inf, -inf}}) {
      for (const OnePassRow& row : {one_pass_row(good, bad, plan), one_pass_row(bad, good, plan)}) {
        EXPECT_TRUE(std::isnan(row.divergence) && std::isnan(row.kappa) && std::isnan(row.student_kl) &&
                    std::isnan(row.teacher_kl));
      }
    }
    EXPECT_TRUE(std::isnan(one_pass_row(std::vector<float>{}, std::vector<float>{}, plan).divergence));
    EXPECT_LE(one_pass_row(std::vector<float>{3}, std::vector<float>{-1e4f}, plan).divergence,
              1e-15);  // V = 1
  }
}

// Catches: rows that are read with the wrong stride or land in the wrong place.
TEST(ChernoffSweep, RowsOfAMatrixAreTheRows) {
  constexpr Index rows = 7, vocab = 333, x_stride = 340, y_stride = 333;
  const Random a(1, 0), b(1, 1);
  std::vector<float> x(rows * x_stride, std::numeric_limits<float>::quiet_NaN()), y(rows * y_stride);
  for (Index r = 0; r < rows; ++r) {
    for (Index v = 0; v < vocab; ++v) {
      x[static_cast<std::size_t>(r * x_stride + v)] = static_cast<float>(a.deviate(r * vocab + v));
      y[static_cast<std::size_t>(r * y_stride + v)] = static_cast<float>(b.deviate(r * vocab + v));
    }
  }
  const OnePassPlan plan({.beta = 0.3});
  const auto all = one_pass_rows(x.data(), x_stride, y.data(), y_stride, rows, vocab, plan);
  ASSERT_EQ(all.size(), static_cast<std::size_t>(rows));
  for (Index r = 0; r < rows; ++r) {
    const OnePassRow one =
        one_pass_row({x.data() + r * x_stride, vocab}, {y.data() + r * y_stride, vocab}, plan);
    EXPECT_EQ(all[static_cast<std::size_t>(r)].divergence, one.divergence);
    EXPECT_EQ(all[static_cast<std::size_t>(r)].kappa, one.kappa);
    EXPECT_EQ(all[static_cast<std::size_t>(r)].student.log_sum, one.student.log_sum);
  }
}

// Catches: a refusal that does not say what is wrong.
TEST(ChernoffSweep, RefusesWhatHasNoMeaning) {
  const auto message = [](const OnePassConfig& config) -> std::string {
    try {
      OnePassPlan plan(config);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message({.beta = 1.5}), "beta is 1.5, but it must be in [0, 1].");
  EXPECT_EQ(message({.beta = NAN}), "beta is nan, but it must be in [0, 1].");
  EXPECT_EQ(message({.last_frequency = 13}),
            "last_frequency is 13, but the product basis has frequencies up to 12.");
  EXPECT_EQ(message({.tile = 0}), "tile is 0, but it must be in [1, 4096].");
  EXPECT_EQ(message({.lanes = 3}), "lanes is 3, but it must be 1, 4 or 16.");
  EXPECT_EQ(message({.headroom = -1}), "headroom is -1, but it must be in [0, 60].");
  const OnePassPlan plan({});
  EXPECT_THROW(one_pass_row(std::vector<float>(3), std::vector<float>(4), plan), std::invalid_argument);
}

}  // namespace
}  // namespace fljsd
