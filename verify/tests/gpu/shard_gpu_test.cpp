// SPDX-License-Identifier: Apache-2.0
// Distributed plans on one GPU: the shard's sweep, merging and reductions without a peer, and, where NCCL is
// found, with communicators of one rank. distributed_gpu_test.cpp has the rest.
#include <gtest/gtest.h>

#include "verify/tests/gpu/team_case.h"

namespace fljsd::testing {
namespace {

// Fault: the records' merge, the shard's tiles or the end of the pass differ from the stage's.
TEST(ShardOnOneGpu, KeepsTheClass) {
  const RankTeam team({1, 1});
  for (const std::string& recipe : recipes_for_teams()) {
    expect_kept(team, recipe);
    expect_kept(team, recipe, {1, true, false});
  }
}

// Fault: an exchange that is not the identity among one: counts, factors, sums of gradients.
TEST(ShardOnOneGpu, KeepsTheClassWithCommunicatorsOfOneRank) {
  if (fljsd_distributed_available(nullptr) != FLJSD_OK) GTEST_SKIP() << fljsd_last_error();
  const RankTeam team({1, 1, true});
  for (const std::string& recipe : recipes_for_teams()) {
    expect_kept(team, recipe);
    expect_kept(team, recipe, {1, true, false});
  }
}

// Fault: the budget is not met, or tiles of another size change more than rounding.
TEST(ShardOnOneGpu, KeepsABudget) {
  const RankTeam team({1, 1});
  const Case c = make_case(parse_recipe("family=kaiming tokens=40 hidden=32 vocab=5000 seed=8"));
  TeamRequest request;
  request.gradient_dtype = DType::bf16;
  request.shards = {{0, 5000}};
  request.parts = {{0, 40}};
  const TeamOutput large = call_team(team, c.problem(), c.options, request);
  request.configure = [](int, fljsd_config& config) { config.memory_budget = 18'500'000; };
  const TeamOutput small = call_team(team, c.problem(), c.options, request);
  EXPECT_TRUE(small.violations.empty());
  // Either side's sums err by 1.5e-6 (one_pass_moments.cuh), its logits by 32 roundings of 2^-23 of their
  // terms, below 1e-6 in a mean of values of order 1.
  EXPECT_LE(std::abs(static_cast<double>(large.loss) - static_cast<double>(small.loss)), 5e-6);
}

// Fault: a wrong argument is not named.
TEST(ShardOnOneGpu, RefusesWhatItCannotDo) {
  const RankTeam team({1, 1});
  const Case c = make_case(parse_recipe("family=kaiming tokens=4 hidden=8 vocab=50 seed=8"));
  TeamRequest request;
  request.gradient_dtype = DType::bf16;
  request.shards = {{0, 50}};
  request.parts = {{0, 4}};
  const auto sentence = [&] {
    try {
      call_team(team, c.problem(), c.options, request);
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  request.configure = [](int, fljsd_config& config) { config.valid_vocab = 51; };
  EXPECT_EQ(sentence(), "valid_vocab is 51, but it must be 0 (all) or in [1, 50], the rows of all shards.");
  request.configure = [](int, fljsd_config& config) { config.stage = "unfused"; };
  EXPECT_EQ(sentence(), "stage is \"unfused\", but several GPUs are served by \"chunked-vocab\" only.");
  request.configure = [](int, fljsd_config&) {};
  request.sum_weight_gradients = true;
  EXPECT_EQ(sentence(), "gradient_dtype is bf16, but sum_weight_gradients needs f32.");
}

}  // namespace
}  // namespace fljsd::testing
