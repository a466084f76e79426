// SPDX-License-Identifier: Apache-2.0
// The part of the C interface that needs no device: versions, the registry, sentences about bad
// configurations.
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "cuda/fljsd.h"

namespace {

TEST(CudaInterface, Version) {
  EXPECT_GT(fljsd_version(), 0);
}

// A stage without a name, twice the same name, the baselines not first, `gemm` not the first of them.
TEST(CudaInterface, RegistryIsComplete) {
  ASSERT_GE(fljsd_stage_count(), 2);
  std::string names = ",";
  bool baselines = true;
  for (int i = 0; i < fljsd_stage_count(); ++i) {
    fljsd_stage stage{};
    stage.struct_size = sizeof stage;
    ASSERT_EQ(fljsd_stage_get(i, &stage), FLJSD_OK);
    if (i == 0) {
      EXPECT_STREQ(stage.name, "gemm");
      EXPECT_NE(stage.is_baseline, 0);
    }
    EXPECT_TRUE(baselines || stage.is_baseline == 0) << stage.name;
    baselines = stage.is_baseline != 0;
    EXPECT_GT(std::string(stage.description).size(), 20u);
    const std::string name = std::string(stage.name) + ",";
    EXPECT_EQ(names.find("," + name), std::string::npos);
    names += name;
  }
  fljsd_stage stage{};
  stage.struct_size = sizeof stage;
  EXPECT_EQ(fljsd_stage_get(fljsd_stage_count(), &stage), FLJSD_INVALID_ARGUMENT);
  EXPECT_EQ(fljsd_stage_get(0, nullptr), FLJSD_INVALID_ARGUMENT);
}

// A message that does not say which field, what it was and what is allowed helps nobody.
TEST(CudaInterface, BadConfigurationsAreNamed) {
  struct Bad {
    std::function<void(fljsd_config&)> spoil;
    const char* field;
  };
  const Bad table[] = {
      {[](auto& c) { c.tokens = -1; }, "tokens is -1"},
      {[](auto& c) { c.vocab = 0; }, "vocab is 0"},
      {[](auto& c) { c.student_hidden = 0; }, "student_hidden is 0"},
      {[](auto& c) { c.teacher_input_ld = 3; }, "teacher_input_ld is 3"},
      {[](auto& c) { c.student_dtype = 9; }, "student_dtype is 9"},
      {[](auto& c) { c.gradient_dtype = FLJSD_F16; }, "gradient_dtype is f16"},
      {[](auto& c) { c.beta = 1.5; }, "beta is 1.5"},
      {[](auto& c) { c.beta = std::numeric_limits<double>::quiet_NaN(); }, "beta is "},
      {[](auto& c) { c.temperature = 0; }, "temperature is 0"},
      {[](auto& c) { c.reduction = 7; }, "reduction is 7"},
      {[](auto& c) { c.gradients = 8; }, "gradients is 8"},
      {[](auto& c) { c.valid_vocab = 11; }, "valid_vocab is 11"},
      {[](auto& c) { c.memory_budget = -5; }, "memory_budget is -5"},
      {[](auto& c) { c.chunk_tokens = -5; }, "chunk_tokens is -5"},
      {[](auto& c) { c.stage = "fuzed"; }, "stage is 'fuzed'"},
      {[](auto& c) { c.stage = nullptr; }, "stage is null"},
      {[](auto& c) { c.struct_size = 4096; }, "struct_size is 4096"},
      // Pitches that CUDA refuses, but only when the gradient is cleared: the losses are out by then.
      {[](auto& c) { c.student_weight_grad_ld = std::int64_t{1} << 29; },
       "student_weight_grad_ld is 536870912"},
      {[](auto& c) { c.student_hidden = std::int64_t{1} << 29; }, "student_hidden is 536870912"},
      // Arrays whose bytes are no 64-bit number: a negative size fits into any memory_budget.
      {[](auto& c) { c.tokens = c.vocab = std::int64_t{1} << 30; },
       "tokens is 1073741824 and vocab is 1073741824"},
      {[](auto& c) { c.vocab = std::int64_t{1} << 30, c.teacher_hidden = std::int64_t{1} << 27; },
       "vocab is 1073741824 and teacher_hidden is 134217728"},
  };
  for (const Bad& bad : table) {
    fljsd_config config;
    ASSERT_EQ(fljsd_config_init(&config, sizeof config), FLJSD_OK);
    config.tokens = 4, config.vocab = 10, config.student_hidden = config.teacher_hidden = 8;
    bad.spoil(config);
    fljsd_plan* plan = nullptr;
    EXPECT_EQ(fljsd_plan_create(&config, &plan), FLJSD_INVALID_ARGUMENT) << bad.field;
    EXPECT_EQ(plan, nullptr);
    EXPECT_NE(std::string(fljsd_last_error()).find(bad.field), std::string::npos) << fljsd_last_error();
  }
  EXPECT_EQ(fljsd_plan_create(nullptr, nullptr), FLJSD_INVALID_ARGUMENT);
}

// What fp32 cannot hold is refused, not computed: 1/beta of a subnormal beta is infinite, and every gradient
// NaN.
TEST(CudaInterface, NumbersBeyondFp32AreUnsupported) {
  struct Beyond {
    double beta, temperature;
    const char* field;
  };
  for (const Beyond& beyond : {Beyond{1e-39, 1, "beta is "}, {0.5, 1e-40, "temperature is "}}) {
    fljsd_config config;
    ASSERT_EQ(fljsd_config_init(&config, sizeof config), FLJSD_OK);
    config.tokens = 4, config.vocab = 10, config.student_hidden = config.teacher_hidden = 8;
    config.beta = beyond.beta, config.temperature = beyond.temperature;
    fljsd_plan* plan = nullptr;
    EXPECT_EQ(fljsd_plan_create(&config, &plan), FLJSD_UNSUPPORTED) << beyond.field;
    EXPECT_EQ(plan, nullptr);
    EXPECT_NE(std::string(fljsd_last_error()).find(beyond.field), std::string::npos) << fljsd_last_error();
  }
}

// Without a device a good configuration is refused for that reason; with one it is accepted.
TEST(CudaInterface, DeviceOrASentence) {
  const fljsd_status available = fljsd_stage_available("unfused", -1);
  if (available != FLJSD_OK) {
    EXPECT_TRUE(available == FLJSD_NO_DEVICE || available == FLJSD_UNSUPPORTED);
    EXPECT_GT(std::string(fljsd_last_error()).size(), 20u);
  }
  EXPECT_EQ(fljsd_stage_available("no such stage", -1), FLJSD_INVALID_ARGUMENT);
  fljsd_plan_destroy(nullptr);
}

}  // namespace
