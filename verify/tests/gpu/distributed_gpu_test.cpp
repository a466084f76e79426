// SPDX-License-Identifier: Apache-2.0
// Distributed plans on two GPUs or more of one machine, a thread for each rank. With fewer it says so, unless
// loopback/nccl_loopback.cu stands in for NCCL: then all ranks share a GPU.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "verify/tests/gpu/team_case.h"

namespace fljsd::testing {
namespace {

class TwoRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (fljsd_distributed_available(nullptr) != FLJSD_OK) {
      std::printf("SKIPPED: %s\n", fljsd_last_error());
    } else if (most_ranks() < 2) {
      std::printf("SKIPPED: Distributed plans are tested on two GPUs, but there is 1.\n");
    } else {
      return;
    }
    GTEST_SKIP();
  }
};
class VocabParallel : public TwoRanks {};
class TokenParallel : public TwoRanks {};
class Grid : public TwoRanks {};
class Agreement : public TwoRanks {};
class MissingRank : public TwoRanks {};

// FLJSD_GPU_RECIPES: how many random recipes a test takes.
std::uint64_t recipes() {
  const char* text = std::getenv("FLJSD_GPU_RECIPES");
  return text == nullptr ? 60 : std::strtoull(text, nullptr, 10);
}

void expect_kept_on_random_recipes(const RankTeam& team) {
  for (std::uint64_t seed = 1; seed <= recipes(); ++seed) {
    const fljsd::Recipe recipe = random_recipe(seed);
    const Case c = make_case(recipe);
    if (is_for_teams(c)) expect_kept(team, c, to_text(recipe), {seed, false, seed % 8 == 0});
  }
}

// Fault: anything that cutting the vocabulary breaks: gradients times the number of ranks, a shard's offset,
// an out-of-shard or all-ignored rank, ranks with other bits.
TEST_F(VocabParallel, KeepsTheClass) {
  const RankTeam team({2, 1});
  for (const std::string& recipe : recipes_for_teams()) {
    expect_kept(team, recipe, {0, false, true});
    expect_kept(team, recipe, {3, false, false});
  }
  expect_kept_on_random_recipes(team);
}

// Fault: a mean over this rank's tokens, counts that are not of all tokens, a part without tokens or one
// whose tokens are all ignored.
TEST_F(TokenParallel, KeepsTheClass) {
  const RankTeam team({1, 2});
  for (const std::string& recipe : recipes_for_teams()) {
    expect_kept(team, recipe, {0, false, true});
    expect_kept(team, recipe, {3, true, false});
  }
  expect_kept(team, "family=kaiming tokens=1 hidden=8 vocab=50 seed=1", {0, false, true});
  expect_kept(team, "family=kaiming tokens=1 hidden=8 vocab=50 seed=1", {0, true, true});
  expect_kept_on_random_recipes(team);
}

// Fault: a mean over the tokens of the ranks that have some which count; 0/0 on a rank that has none.
TEST_F(TokenParallel, KeepsTheClassWhereNobodyOfARankCounts) {
  const RankTeam team({1, 2});
  for (const char* options : {"", " beta=0", " reduction=sum bias=both"}) {
    const std::string recipe = std::string("family=kaiming tokens=12 hidden=16 vocab=200 seed=9") + options;
    Case c = make_case(parse_recipe(recipe));
    c.labels.emplace(12, 0);
    std::fill_n(c.labels->begin(), 6, c.options.ignore_index);
    expect_kept(team, c, recipe, {0, false, true});
    std::rotate(c.labels->begin(), c.labels->begin() + 6, c.labels->end());
    expect_kept(team, c, recipe, {0, true, true});
  }
}

// Fault: the two kinds of cut do not combine.
TEST_F(Grid, KeepsTheClass) {
  if (most_ranks() < 4) GTEST_SKIP() << "A grid of two by two ranks needs four GPUs.";
  const RankTeam team({2, 2});
  for (const std::string& recipe : recipes_for_teams()) {
    expect_kept(team, recipe, {0, false, true});
    expect_kept(team, recipe, {3, true, false});
  }
}

// Fault: a shard that counts twice, or whose sums refer to something else. On integers logits are exact
// however they are summed, so all that differs is how the statistics are put together: each side's sums err
// by at most 1.5e-6 (one_pass_moments.cuh).
TEST_F(VocabParallel, GivesTheLossesOfOneGpu) {
  const RankTeam one({1, 1}), two({2, 1});
  for (const char* options : {"", " beta=0.1", " beta=0.9 temperature=2"}) {
    const Case c = make_case(
        parse_recipe(std::string("family=integer-grid tokens=64 hidden=32 vocab=3000 seed=4") + options));
    TeamRequest request;
    request.gradient_dtype = DType::bf16;
    request.parts = {{0, 64}};
    for (const bool gradients : {false, true}) {
      request.gradients = gradients;
      request.shards = {{0, 3000}};
      const TeamOutput want = call_team(one, c.problem(), c.options, request);
      request.shards = {{0, 1234}, {1234, 1766}};
      const TeamOutput got = call_team(two, c.problem(), c.options, request);
      // A record of a token for the other rank, half of the summed input gradient sent and received.
      EXPECT_EQ(got.exchanged_bytes, gradients ? 448 * 64 + 4 * 64 * 32 : 256 * 64);
      for (std::size_t t = 0; t < 64; ++t) {
        const double difference =
            static_cast<double>(got.token_loss[t]) - static_cast<double>(want.token_loss[t]);
        EXPECT_TRUE(std::abs(difference) <= 3e-6) << options << ": token " << t << ": " << difference;
      }
    }
  }
}

// The same for many ranks, some of which have a single entry.
TEST_F(Grid, KeepsTheClassWithManyRanks) {
  if (most_ranks() < 8) GTEST_SKIP() << "This needs eight GPUs.";
  for (const RankGrid& grid : {RankGrid{8, 1}, RankGrid{3, 2}}) {
    const RankTeam team(grid);
    for (const std::string& recipe : recipes_for_teams()) expect_kept(team, recipe, {5, false, false});
  }
}

struct Outcomes {
  std::string sentence[2];
  fljsd_status status[2] = {FLJSD_OK, FLJSD_OK};
};

fljsd_config small_config() {
  fljsd_config c;
  fljsd_config_init(&c, sizeof c);
  c.tokens = 4;
  c.vocab = 100;
  c.student_hidden = c.teacher_hidden = 16;
  return c;
}

// Makes a plan on both ranks.
Outcomes make_plans(const RankTeam& team, const std::function<void(int, fljsd_config&)>& configure) {
  Outcomes outcomes;
  team.run([&](int rank) {
    fljsd_config c = small_config();
    configure(rank, c);
    const fljsd_ranks ranks = team.ranks_of(rank);
    fljsd_plan* plan = nullptr;
    outcomes.status[rank] = fljsd_plan_create_distributed(&c, &ranks, &plan);
    outcomes.sentence[rank] = fljsd_last_error();
    fljsd_plan_destroy(plan);
  });
  return outcomes;
}

// Fault: ranks that differ give a wrong loss, or wait for each other.
TEST_F(Agreement, NamesWhatDiffers) {
  const RankTeam team({2, 1});
  const Outcomes beta = make_plans(team, [](int rank, fljsd_config& c) { c.beta = rank == 0 ? 0.5 : 0.25; });
  for (const int rank : {0, 1}) {
    EXPECT_EQ(beta.status[rank], FLJSD_INVALID_ARGUMENT);
    EXPECT_EQ(beta.sentence[rank],
              "beta must be the same on all ranks of the vocabulary group, but rank 0 has 0.5 and rank 1 has "
              "0.25.");
  }
  const Outcomes tokens = make_plans(team, [](int rank, fljsd_config& c) { c.tokens += rank; });
  EXPECT_EQ(
      tokens.sentence[1],
      "tokens must be the same on all ranks of the vocabulary group, but rank 0 has 4 and rank 1 has 5.");
  const Outcomes refused = make_plans(team, [](int rank, fljsd_config& c) {
    if (rank == 1) c.temperature = -1;
  });
  EXPECT_EQ(refused.sentence[0], "Rank 1 of the vocabulary group refused its configuration.");
  EXPECT_EQ(refused.sentence[1], "temperature is -1, but it must be positive and finite.");
  const Outcomes fine = make_plans(team, [](int rank, fljsd_config& c) { c.vocab += rank; });
  for (const int rank : {0, 1}) EXPECT_EQ(fine.status[rank], FLJSD_OK) << fine.sentence[rank];
}

// Fault: a rank that never comes leaves the other one waiting for ever.
TEST_F(MissingRank, EndsTheMakingOfACommunicator) {
  char id[FLJSD_COMMUNICATOR_ID_BYTES];
  ASSERT_EQ(fljsd_communicator_id(id), FLJSD_OK) << fljsd_last_error();
  fljsd_communicator* communicator = nullptr;
  EXPECT_EQ(fljsd_communicator_create(id, 2, 0, 2000, &communicator), FLJSD_COMMUNICATION_ERROR);
  EXPECT_EQ(
      std::string(fljsd_last_error()),
      "A rank did not come within 2000 ms while creating a communicator; the communicator was aborted.");
  EXPECT_EQ(communicator, nullptr);
}

// Fault: a rank that leaves between two calls leaves the other one waiting for ever; or its GPU busy.
TEST_F(MissingRank, EndsACall) {
  const RankTeam team({2, 1}, 6000);
  team.run([&](int rank) {
    const fljsd_config c = small_config();
    const fljsd_ranks ranks = team.ranks_of(rank);
    fljsd_plan* plan = nullptr;
    ASSERT_EQ(fljsd_plan_create_distributed(&c, &ranks, &plan), FLJSD_OK) << fljsd_last_error();
    if (rank == 0) {
      std::uint64_t bytes = 0;
      ASSERT_EQ(fljsd_plan_workspace_bytes(plan, FLJSD_FORWARD, &bytes), FLJSD_OK);
      void *workspace = nullptr, *data = nullptr;
      ASSERT_EQ(cudaMalloc(&workspace, bytes), cudaSuccess);
      ASSERT_EQ(cudaMalloc(&data, 1 << 16), cudaSuccess);
      ASSERT_EQ(cudaMemset(data, 0, 1 << 16), cudaSuccess);
      fljsd_tensors t{};
      t.struct_size = sizeof t;
      t.student_input = t.teacher_input = t.student_weight = t.teacher_weight = data;
      fljsd_status status = fljsd_forward(plan, &t, workspace, bytes, nullptr);
      if (status == FLJSD_OK) status = fljsd_plan_wait(plan, nullptr, 2000);
      EXPECT_EQ(status, FLJSD_COMMUNICATION_ERROR) << fljsd_last_error();
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // the GPU is free again
      EXPECT_EQ(fljsd_forward(plan, &t, workspace, bytes, nullptr), FLJSD_COMMUNICATION_ERROR);
      cudaFree(data);
      cudaFree(workspace);
    }
    fljsd_plan_destroy(plan);
  });
}

}  // namespace
}  // namespace fljsd::testing
