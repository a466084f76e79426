// SPDX-License-Identifier: Apache-2.0
// Plans that calls share: which configurations share one, how many are kept, and for how long.
#include "verify/candidates/cuda/plan_cache.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "verify/candidates/cuda/stage_call.h"
#include "verify/tests/gpu/runtime_on_host.h"

namespace fljsd {
namespace {

class PlanCacheTest : public testing::Test {
 protected:
  void SetUp() override { host_runtime::restart(); }
  // Catches: a plan that is never destroyed, or destroyed twice. Whatever a test holds is gone by now.
  void TearDown() override { EXPECT_EQ(host_runtime::state().plans_alive, 0); }

  static int made() { return host_runtime::state().plans_made; }
  static int alive() { return host_runtime::state().plans_alive; }
};

fljsd_config config_of(std::int64_t tokens, const char* stage = "unfused") {
  fljsd_config config{};
  config.struct_size = sizeof config;
  config.tokens = tokens;
  config.stage = stage;
  return config;
}

// Catches: a key that holds the address of the stage's name, or one that is never found again.
TEST_F(PlanCacheTest, EqualConfigurationsShareAPlan) {
  PlanCache cache;
  const std::string name = "unfused", same_name = "unfused";
  const PlanPointer first = cache.get(config_of(3, name.c_str()));
  EXPECT_EQ(cache.get(config_of(3, same_name.c_str())), first);
  EXPECT_EQ(made(), 1);
}

// Catches: a name that is compared by its address, so that one buffer with another text finds the old stage.
TEST_F(PlanCacheTest, StagesAreToldApartByTheirText) {
  PlanCache cache;
  char name[] = "one-pass";
  const PlanPointer first = cache.get(config_of(3, name));
  std::strcpy(name, "one-pasT");
  const PlanPointer second = cache.get(config_of(3, name));
  EXPECT_NE(second, first);
  EXPECT_EQ(second->stage, "one-pasT");
}

// Catches: a field that the key leaves out, and the plan of one temperature that answers for another. All
// bits that a configuration has, the pointer excepted, so that no field can be forgotten here.
TEST_F(PlanCacheTest, EveryFieldTellsConfigurationsApart) {
  for (std::size_t byte = 0; byte < sizeof(fljsd_config); ++byte) {
    if (byte - offsetof(fljsd_config, stage) < sizeof(const char*)) continue;
    PlanCache cache;
    fljsd_config config = config_of(3);
    const PlanPointer first = cache.get(config);
    reinterpret_cast<unsigned char*>(&config)[byte] ^= 1;
    EXPECT_NE(cache.get(config), first) << "byte " << byte;
  }
}

// Catches: bytes between the fields, whose value is anybody's guess: equal configurations would not be found.
TEST_F(PlanCacheTest, ConfigurationsHaveNoGaps) {
  const fljsd_config c{};
  EXPECT_EQ(sizeof c, sizeof c.struct_size + sizeof c.tokens + sizeof c.vocab + sizeof c.student_hidden +
                          sizeof c.teacher_hidden + sizeof c.student_input_ld + sizeof c.student_weight_ld +
                          sizeof c.teacher_input_ld + sizeof c.teacher_weight_ld +
                          sizeof c.student_input_grad_ld + sizeof c.student_weight_grad_ld +
                          sizeof c.student_dtype + sizeof c.teacher_dtype + sizeof c.gradient_dtype +
                          sizeof c.student_bias_dtype + sizeof c.teacher_bias_dtype + sizeof c.has_labels +
                          sizeof c.ignore_index + sizeof c.valid_vocab + sizeof c.beta +
                          sizeof c.temperature + sizeof c.reduction + sizeof c.gradients + sizeof c.stage +
                          sizeof c.memory_budget + sizeof c.device + sizeof c.reserved +
                          sizeof c.chunk_tokens + sizeof c.chunk_vocab + sizeof c.gradient_chunk_vocab);
}

// Catches: plans (and their cuBLASLt handles) that pile up, the plan of another configuration, and one that
// is dropped though it was asked for lately. How many are kept is the cache's own affair, but some are.
TEST_F(PlanCacheTest, TheLatestAreKept) {
  PlanCache cache;
  std::int64_t next = 0;
  for (; alive() == made() && next < 100; ++next) EXPECT_EQ(cache.get(config_of(next))->config.tokens, next);
  const std::int64_t kept = alive();
  ASSERT_GE(kept, 2);
  ASSERT_LT(kept, 100);

  const int made_before = made();
  const std::int64_t oldest = next - kept;
  EXPECT_EQ(cache.get(config_of(oldest))->config.tokens, oldest);  // the latest now
  EXPECT_EQ(made(), made_before);
  cache.get(config_of(next));  // in the place of oldest + 1
  EXPECT_EQ(alive(), kept);
  EXPECT_EQ(made(), made_before + 1);
  cache.get(config_of(oldest));
  for (std::int64_t tokens = oldest + 2; tokens <= next; ++tokens)
    EXPECT_EQ(cache.get(config_of(tokens))->config.tokens, tokens);
  EXPECT_EQ(made(), made_before + 1);
  cache.get(config_of(oldest + 1));
  EXPECT_EQ(made(), made_before + 2);
}

// Catches: a plan that is destroyed with its entry, or with the cache, under a call that still uses it.
TEST_F(PlanCacheTest, APlanInUseOutlivesItsEntry) {
  PlanPointer used;
  {
    PlanCache cache;
    used = cache.get(config_of(0));
    for (std::int64_t tokens = 1; tokens <= 100; ++tokens) cache.get(config_of(tokens));
    EXPECT_EQ(used->config.tokens, 0);
    EXPECT_NE(cache.get(config_of(0)), used);
  }
  EXPECT_EQ(alive(), 1);
  EXPECT_EQ(used->config.tokens, 0);
}

// Catches: a refusal that is remembered, as a null plan or as one for ever; that costs the plans there are;
// or whose kind is lost: what a stage does not support is no failure.
TEST_F(PlanCacheTest, ARefusalLeavesNothingBehind) {
  PlanCache cache;
  const PlanPointer before = cache.get(config_of(1));
  host_runtime::state().answer_to_plan = FLJSD_UNSUPPORTED;
  EXPECT_THROW(cache.get(config_of(2)), StageUnsupported);
  host_runtime::state().answer_to_plan = FLJSD_CUDA_ERROR;
  try {
    cache.get(config_of(2));
    ADD_FAILURE() << "There is a plan, though the library refused.";
  } catch (const StageUnsupported&) {
    ADD_FAILURE() << "A failure of CUDA passes for a missing feature.";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), fljsd_last_error());
  }
  EXPECT_EQ(cache.get(config_of(1)), before);
  host_runtime::state().answer_to_plan = FLJSD_OK;
  EXPECT_EQ(cache.get(config_of(2))->config.tokens, 2);
  EXPECT_EQ(alive(), 2);
}

}  // namespace
}  // namespace fljsd
