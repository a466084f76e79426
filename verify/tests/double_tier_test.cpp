// SPDX-License-Identifier: Apache-2.0
// The double tier against the certified one: on random recipes, every loss and every gradient lies within the
// a-priori bound that double_tier_bound() states for it. The bound has no free constant, so nothing here is
// tuned.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "reference/enclosure.h"
#include "reference/parallel.h"
#include "verify/cases/recipe.h"
#include "verify/properties/compare.h"
#include "verify/properties/implementation.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// How far the value may be from the true one, at least and at most: |value − truth| for every truth in the
// enclosure is within [nearest, farthest]. NaN and infinite truths are exact.
double nearest(const Enclosure& truth, double value) {
  if (truth.contains(value) || (std::isnan(truth.lo) && std::isnan(value))) return 0;
  const double distance = value < truth.lo ? truth.lo - value : value - truth.hi;
  return std::isnan(distance) ? infinity : distance;
}

// What one case showed. A ratio is error / bound.
struct Findings {
  std::vector<std::string> failures;
  double worst_loss = 0, worst_grad = 0;
  Index compared = 0;
  Index vague = 0;  // of a case: quantities that the certified tier does not settle; of many: cases with any
};

class Referee {
 public:
  Referee(const Case& c, const Implementation& tier)
      : evaluation_(c, tier), truth_(certify(c.problem(), c.options, Wanted::all())) {}

  Findings judge() {
    const Result& result = evaluation_.result;
    const ErrorBound& bound = evaluation_.bound;
    if (result.loss.has_value() != truth_.loss.has_value()) fail("only one tier has a loss");
    if (result.loss) check("loss", {&*truth_.loss, 1}, {&*result.loss, 1}, bound.loss, findings_.worst_loss);
    const auto size = [](const auto& values) { return static_cast<Index>(values.size()); };
    for (Index t = 0; t < size(result.token_loss); ++t) {
      const auto i = static_cast<std::size_t>(t);
      check(fmt::format("token_loss[{}]", t), {&truth_.token_loss[i], 1}, {&result.token_loss[i], 1},
            bound.token_loss[i], findings_.worst_loss);
    }
    const Index hidden = result.student_input_grad.cols();
    const auto row = [&](const std::vector<Enclosure>& all, Index r) {
      return std::span(all).subspan(static_cast<std::size_t>(r * hidden), static_cast<std::size_t>(hidden));
    };
    for (Index t = 0; t < result.student_input_grad.rows(); ++t) {
      if (!evaluation_.judges_input_grad(t)) continue;
      check(fmt::format("student_input_grad[{}]", t), row(truth_.student_input_grad, t),
            row_of(result.student_input_grad, t), bound.student_input_grad[static_cast<std::size_t>(t)],
            findings_.worst_grad);
    }
    if (!evaluation_.judges_weight_grad()) return findings_;
    for (Index v = 0; v < result.student_weight_grad.rows(); ++v) {
      check(fmt::format("student_weight_grad[{}]", v), row(truth_.student_weight_grad, v),
            row_of(result.student_weight_grad, v), bound.student_weight_grad[static_cast<std::size_t>(v)],
            findings_.worst_grad);
    }
    for (Index v = 0; v < size(result.student_bias_grad); ++v) {
      const auto i = static_cast<std::size_t>(v);
      check(fmt::format("student_bias_grad[{}]", v), {&truth_.student_bias_grad[i], 1},
            {&result.student_bias_grad[i], 1}, bound.student_bias_grad[i], findings_.worst_grad);
    }
    return findings_;
  }

 private:
  // ‖values − truth‖₂ <= allowed, for the truth that lies nearest to the values, so that an enclosure never
  // accuses wrongly. One that is wider than what is allowed says nothing; it is counted.
  void check(const std::string& what, std::span<const Enclosure> truth, std::span<const double> values,
             double allowed, double& worst) {
    if (evaluation_.may_overflow && allowed == infinity) return;
    ++findings_.compared;
    std::vector<double> error(values.size()), width(values.size());
    bool finite_alike = true;
    for (std::size_t i = 0; i < values.size(); ++i) {
      error[i] = nearest(truth[i], values[i]);
      const bool exact = std::isnan(truth[i].lo) || truth[i].lo == truth[i].hi;
      width[i] = exact ? 0 : truth[i].hi - truth[i].lo;
      finite_alike = finite_alike && std::isfinite(values[i]) == std::isfinite(truth[i].lo);
    }
    const double distance = norm(error);
    if (!std::all_of(truth.begin(), truth.end(),
                     [](const Enclosure& e) { return e.rounds_to.has_value(); }) &&
        norm(width) > allowed) {
      ++findings_.vague;
      return;
    }
    if (distance > 0) worst = std::max(worst, distance / allowed);
    if (distance == 0 || (distance <= allowed && finite_alike)) return;
    fail(fmt::format("{} is off by {}, but the bound is {}; its first element is {}, truly in [{}, {}]", what,
                     distance, allowed, values[0], truth[0].lo_text, truth[0].hi_text));
  }
  void fail(const std::string& text) { findings_.failures.push_back(text); }

  Evaluation evaluation_;
  CertifiedResult truth_;
  Findings findings_;
};

// The recipes with these seeds, all cores busy; what they showed together.
Findings judge_recipes(std::uint64_t first, Index count, const RecipeRange& range,
                       const Implementation& tier) {
  Findings all;
  std::mutex mutex;
  parallel_for(count, [&](Index i) {
    const Recipe recipe = random_recipe(first + static_cast<std::uint64_t>(i), range);
    const Case c = make_case(recipe);
    const Findings one = Referee(c, tier).judge();
    const std::lock_guard lock(mutex);
    for (const std::string& failure : one.failures)
      all.failures.push_back(failure + "\n  recipe: " + to_text(recipe));
    all.worst_loss = std::max(all.worst_loss, one.worst_loss);
    all.worst_grad = std::max(all.worst_grad, one.worst_grad);
    all.compared += one.compared;
    all.vague += one.vague > 0 ? 1 : 0;
  });
  return all;
}

void expect_within_bound(const Findings& findings) {
  for (std::size_t i = 0; i < std::min<std::size_t>(findings.failures.size(), 5); ++i)
    ADD_FAILURE() << findings.failures[i];
  EXPECT_EQ(findings.failures.size(), 0u);
  // Sums that cancel exactly keep a width that 160 digits make tiny beside any bound; nothing else is left
  // unsettled, whatever the size of the logits.
  EXPECT_EQ(findings.vague, 0);
  // The tier rounds, so some error must be seen, and a bound that is never approached bounds nothing.
  EXPECT_GT(findings.worst_loss, 1e-4);
  EXPECT_GT(findings.worst_grad, 1e-4);
  ::testing::Test::RecordProperty("compared", std::to_string(findings.compared));
  ::testing::Test::RecordProperty("worst_loss_ratio", fmt::format("{:.3g}", findings.worst_loss));
  ::testing::Test::RecordProperty("worst_grad_ratio", fmt::format("{:.3g}", findings.worst_grad));
}

// Catches an error bound that leaves out a rounding, and any loss of accuracy of the double tier, in every
// family and under every option.
TEST(DoubleTier, LiesWithinItsBoundOfTheCertifiedTier) {
  RecipeRange range;
  range.max_tokens = 3;
  range.max_hidden = 7;
  range.max_vocab = 9;
  expect_within_bound(judge_recipes(1, 4000, range, double_tier()));
}

// Catches errors that only longer sums show.
TEST(DoubleTier, LiesWithinItsBoundOnLongerSums) {
  RecipeRange range;
  range.max_tokens = 5;
  range.max_hidden = 33;
  range.max_vocab = 40;
  expect_within_bound(judge_recipes(100000, 300, range, double_tier()));
}

// Catches a referee that convicts nobody: results with a relative error of 2^-30 in the gradient, or of 2^-25
// in the loss, are far outside a bound of double precision.
TEST(DoubleTier, RefereeConvictsSinglePrecision) {
  RecipeRange range;
  range.max_tokens = 3;
  range.max_hidden = 7;
  range.max_vocab = 9;
  range.families = {2};
  range.no_distribution = false;
  Implementation rounded = double_tier();
  rounded.compute = [](const Case& c) {
    Result result = double_tier().compute(c);
    for (double& loss : result.token_loss) loss = static_cast<float>(loss);
    result.student_input_grad *= 1 + 0x1p-30;
    return result;
  };
  const Findings findings = judge_recipes(1, 50, range, rounded);
  EXPECT_GE(findings.failures.size(), 50u);
  EXPECT_GT(findings.worst_loss, 1e3);
  EXPECT_GT(findings.worst_grad, 1e3);
}

}  // namespace
}  // namespace fljsd
