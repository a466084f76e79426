// SPDX-License-Identifier: Apache-2.0
// The stages as candidates: random recipes of all input families, options, formats and layouts, judged by the
// budgets of the class that each stage declares. `fljsd fuzz --candidate cuda:NAME` does the same for as long
// as one likes, and shrinks what it finds.
#include <cstdlib>

#include <gtest/gtest.h>

#include "verify/candidates/cuda_stage.h"
#include "verify/cases/recipe.h"
#include "verify/judge/verdict.h"

namespace fljsd {
namespace {

// FLJSD_GPU_RECIPES: how many per stage.
std::uint64_t recipes() {
  const char* text = std::getenv("FLJSD_GPU_RECIPES");
  return text == nullptr ? 200 : std::strtoull(text, nullptr, 10);
}

std::vector<std::string> names() {
  std::vector<std::string> list;
  for (const CandidateEntry& entry : list_cuda_candidates()) list.push_back(entry.name);
  return list;
}

class Candidates : public testing::TestWithParam<std::string> {};

// Whatever the handwritten cases of the other tests leave out: families with subnormals, cancellation,
// infinities and disjoint supports; combinations of options; addresses and strides.
TEST_P(Candidates, KeepTheirClassOnRandomRecipes) {
  const std::unique_ptr<Candidate> candidate = make_candidate(GetParam());
  const Declaration declaration = candidate->declaration();
  std::uint64_t judged = 0;
  for (std::uint64_t seed = 1; seed <= recipes(); ++seed) {
    const Recipe recipe = random_recipe(seed);
    const Case c = make_case(recipe);
    if (!(needed_features(c) & declaration.lacks).empty()) continue;
    const LaidOutCase laid_out(c, recipe.layout);
    const Outcome outcome = candidate->compute_views(laid_out.problem(), c.options, Request{});
    if (std::holds_alternative<Unsupported>(outcome)) continue;
    if (const auto* failure = std::get_if<Failure>(&outcome)) {
      ADD_FAILURE() << to_text(recipe) << ": " << failure->text;
      continue;
    }
    const Wanted wanted{true, true, c.student_bias.has_value(), std::nullopt};
    const Truth truth{linear_jsd<double>(c.problem(), c.options, wanted), false};
    const Answer& answer = std::get<Answer>(outcome);
    const Verdict verdict =
        judge(c, truth, wanted, answer.result, declaration.accuracy_class, answer.loss_format);
    EXPECT_TRUE(verdict.pass()) << to_text(recipe) << '\n' << format(verdict);
    ++judged;
  }
  EXPECT_GT(judged, 0u);
  RecordProperty("judged", std::to_string(judged));
}

std::string test_name(const testing::TestParamInfo<std::string>& candidate) {
  std::string name = candidate.param.substr(candidate.param.find(':') + 1);
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, Candidates, testing::ValuesIn(names()), test_name);

}  // namespace
}  // namespace fljsd
