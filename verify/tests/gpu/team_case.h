// SPDX-License-Identifier: Apache-2.0
// A recipe's case on a team of GPUs, judged.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "verify/candidates/cuda/stage_form.h"
#include "verify/candidates/cuda/team_call.h"
#include "verify/cases/recipe.h"
#include "verify/judge/verdict.h"

namespace fljsd::testing {

struct TeamTrial {
  std::uint64_t seed = 1;  // of the cuts; 0: even ones
  bool sum_weight_gradients = false;
  bool twice = true;
};

// Whether a team can be given the case as it is: formats, enormous logits.
inline bool is_for_teams(const Case& c) {
  const Problem p = c.problem();
  for (const MatrixView& m : {p.student_input, p.student_weight, p.teacher_input, p.teacher_weight})
    if (m.dtype == DType::f64) return false;
  for (const auto& b : {p.student_bias, p.teacher_bias})
    if (b && b->dtype == DType::f64) return false;
  return p.student_input.dtype == p.student_weight.dtype && p.teacher_input.dtype == p.teacher_weight.dtype &&
         !has_enormous_logits(p, c.options);
}

// Losses of both passes and gradients, against the budgets of the class that the stage declares.
inline TeamOutput expect_kept(const RankTeam& team, const Case& c, const std::string& what,
                              const TeamTrial& trial = {}) {
  const Problem p = c.problem();
  TeamRequest request;
  request.gradient_dtype = trial.sum_weight_gradients ? DType::f32 : p.student_input.dtype;
  request.sum_weight_gradients = trial.sum_weight_gradients;
  request.shards = ragged_shards(p.vocab(), team.grid().vocab, trial.seed);
  request.parts = cut_vocabulary(p.tokens(), team.grid().tokens, trial.seed);
  const TeamOutput output = call_team(team, p, c.options, request, trial.twice);
  for (const std::string& violation : output.violations) ADD_FAILURE() << what << ": " << violation;
  const Wanted wanted{true, true, c.student_bias.has_value(), std::nullopt};
  const Truth truth{linear_jsd<double>(p, c.options, wanted), false};
  const auto losses_of = [&](const TeamOutput& of) {
    Result result;
    result.counted = count_tokens(p, c.options);
    if (c.options.reduction != Reduction::none) result.loss = static_cast<double>(of.loss);
    result.token_loss.assign(of.token_loss.begin(), of.token_loss.end());
    return result;
  };
  const auto judge_it = [&](const Result& result, const char* pass) {
    const Verdict verdict = judge(c, truth, wanted, result, AccuracyClass::fp32_logits, DType::f32);
    EXPECT_TRUE(verdict.pass()) << what << ", " << pass << '\n' << format(verdict);
  };
  Result result = losses_of(output);
  result.student_input_grad = output.input_grad;
  result.student_weight_grad = output.weight_grad;
  if (p.student_bias) result.student_bias_grad = output.bias_grad;
  judge_it(result, "with gradients");
  request.gradients = false;
  judge_it(losses_of(call_team(team, p, c.options, request)), "forward");
  return output;
}

inline TeamOutput expect_kept(const RankTeam& team, const std::string& recipe, const TeamTrial& trial = {}) {
  return expect_kept(team, make_case(parse_recipe(recipe)), recipe, trial);
}

// Every kind of cut and edge, for any team.
inline const char* const team_recipes[] = {
    "family=kaiming tokens=9 hidden=16 vocab=301 seed=1",
    "family=padded-vocab tokens=5 hidden=8 vocab=400 seed=7 valid_vocab=201 bias=both beta=0.2",
    "family=kaiming tokens=12 hidden=16 vocab=200 seed=5 ignored=50 poisoned=1",
    "family=kaiming tokens=9 hidden=16 vocab=301 seed=1 beta=0",
    "family=kaiming tokens=5 hidden=8 vocab=1 seed=8 bias=both",  // fewer entries than ranks
    "family=kaiming tokens=9 hidden=16 vocab=301 seed=1 beta=1",
    "family=published tokens=33 hidden=64 vocab=1000 seed=2 beta=0.3 dtype=f16",
    "family=disjoint tokens=7 hidden=16 vocab=129 seed=3 beta=0.9 bias=both",
    "family=peaked tokens=8 hidden=16 vocab=257 seed=4 bias=student temperature=0.7",
    "family=kaiming tokens=12 hidden=16 vocab=200 seed=5 ignored=50 reduction=sum",
    "family=kaiming tokens=12 hidden=16 vocab=200 seed=5 ignored=50 reduction=none beta=0.1",
    "family=kaiming tokens=6 hidden=8 vocab=33 seed=6 ignored=100",  // nobody counts: 0, not 0/0
    // The last ranks have no entry that exists, or the first has one.
    "family=padded-vocab tokens=5 hidden=8 vocab=400 seed=7 valid_vocab=3",
    "family=padded-vocab tokens=5 hidden=8 vocab=400 seed=7 valid_vocab=1 beta=1",
    "family=kaiming tokens=5 hidden=8 vocab=2 seed=8 beta=0",
};

// The first FLJSD_TEAM_RECIPES of them, by default all: tools that watch every access take their time.
inline std::vector<std::string> recipes_for_teams() {
  const char* text = std::getenv("FLJSD_TEAM_RECIPES");
  const std::size_t most = text == nullptr ? std::size(team_recipes) : std::strtoull(text, nullptr, 10);
  return {std::begin(team_recipes), std::begin(team_recipes) + std::min(most, std::size(team_recipes))};
}

}  // namespace fljsd::testing
