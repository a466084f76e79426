// SPDX-License-Identifier: Apache-2.0
// What only the fused stages' own kernels can get wrong: tiles, clusters and groups of tokens, references
// that a later tile exceeds, marks that send a group to the general kernel. Rows start at multiples of 16
// bytes here, which the kernels need; other rows are served by chunked-vocab, as in the tests of all stages.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "verify/tests/gpu/gpu_case.h"

namespace fljsd::testing {
namespace {

// Logits that a test chooses: hidden 2, inputs (1, 0), weights (logit, 1), so that each logit is exact.
// Padded to rows of 8 elements.
HostCase chosen_logits(Index tokens, Index vocab, double beta) {
  Recipe r;
  r.tokens = tokens, r.vocab = vocab, r.student_hidden = r.teacher_hidden = 2, r.pad = 6,
  r.options.beta = beta;
  HostCase host = make_case(r);
  for (HostMatrix* input : {&host.student_input, &host.teacher_input}) {
    for (Index t = 0; t < tokens; ++t) input->set(t, 0, 1), input->set(t, 1, 0);
  }
  for (HostMatrix* weight : {&host.student_weight, &host.teacher_weight}) {
    for (Index v = 0; v < vocab; ++v) weight->set(v, 0, 0), weight->set(v, 1, 1);
  }
  return host;
}

class Fused : public ::testing::TestWithParam<std::string> {};

void check(const std::string& stage, const HostCase& host, const Configure& configure = {}) {
  DeviceCase device(host, stage, false, configure);
  if (std::string(fljsd_plan_describe(device.plan())).find("fused sweep") == std::string::npos)
    GTEST_SKIP() << fljsd_plan_describe(device.plan());
  const StageResult result = device.run(0xff);
  expect_close(result, host, stage, 0);
  EXPECT_TRUE(result.same_bits(device.run(0x3f))) << device.name() << ": the second run differs";
}

// Tails of tokens, vocabulary and hidden; both models' hidden sizes in their own place.
TEST_P(Fused, AnySize) {
  for (const Index tokens : {1, 63, 64, 65, 128, 129, 256, 257, 700}) {
    for (const Index vocab : {1, 2, 7, 159, 160, 161, 320, 1283}) {
      Recipe r;
      r.tokens = tokens, r.vocab = vocab;
      r.student_hidden = 17, r.teacher_hidden = 65, r.pad = 7;  // rows of 24 and 72
      check(GetParam(), make_case(r));
    }
  }
  for (const Index hidden : {1, 9, 57, 65, 129, 201}) {
    Recipe r;
    r.tokens = 40, r.vocab = 333, r.student_hidden = r.teacher_hidden = hidden, r.pad = 7;
    check(GetParam(), make_case(r));
  }
}

// Few clusters: each has many tiles, two blocks of tokens in turns, and several groups after one another; the
// second half of a group's last tile is finished in the next group.
TEST_P(Fused, ClustersTurnsAndGroups) {
  for (const Index tokens : {300, 1100}) {
    for (const Index entries : {160, 700, 100000}) {  // that a cluster sweeps
      for (const Index group : {256, 1536}) {         // tokens
        Recipe r;
        r.tokens = tokens, r.vocab = 1203;
        for (const double beta : {0.3, 0.0, 1.0}) {
          r.options.beta = beta;
          check(GetParam(), make_case(r),
                [&](fljsd_config& c) { c.chunk_vocab = entries, c.chunk_tokens = group; });
        }
      }
    }
  }
}

// Logits that rise along the vocabulary, beyond what the fast kernel's references allow (44 nats): marked and
// done again; and within it: not marked, and right all the same.
TEST_P(Fused, RisingLogits) {
  for (const double step : {2.0, 8.0, 30.0, 60.0, 250.0, 10000.0}) {
    for (const double beta : {0.5, 0.01, 0.99, 0.0, 1.0}) {
      HostCase host = chosen_logits(5, 2000, beta);
      for (Index v = 0; v < 2000; ++v) {
        host.student_weight.set(v, 0, static_cast<double>(v / 160) * step + static_cast<double>(v % 3));
        host.teacher_weight.set(v, 0,
                                static_cast<double>((v + 80) / 160) * step - static_cast<double>(v % 5));
      }
      check(GetParam(), host, [](fljsd_config& c) { c.chunk_vocab = 1000; });
    }
  }
}

// Huge logits, offsets between the models, disjoint supports, one entry far above all: phases and references
// that are rounded to their own size.
TEST_P(Fused, AdversarialRows) {
  for (const double beta : {0.5, 0.01, 0.99, 0.0, 1.0}) {
    for (const double offset : {1e4, -1e4, 0x1p20, -0x1p22, 0x1p30, 0x1p60, -0x1p60}) {
      HostCase host = chosen_logits(3, 1000, beta);
      for (Index v = 0; v < 1000; ++v) {
        host.student_weight.set(v, 0, offset);
        host.teacher_weight.set(v, 0, v % 2 == 0 ? -offset : -offset * 1.5);
      }
      check(GetParam(), host);
    }
    for (const Index at : {0, 159, 160, 777, 999}) {  // peaked, at different entries or the same one
      HostCase host = chosen_logits(3, 1000, beta);
      host.student_weight.set(at, 0, 88);
      host.teacher_weight.set(999 - at, 0, 120);
      check(GetParam(), host);
      host.teacher_weight.set(at, 0, 200);
      check(GetParam(), host);
    }
    HostCase disjoint = chosen_logits(3, 1000, beta);
    for (Index v = 0; v < 1000; ++v) {
      disjoint.student_weight.set(v, 0, v < 500 ? 0 : -100);
      disjoint.teacher_weight.set(v, 0, v < 500 ? -100 : 0);
    }
    check(GetParam(), disjoint);
  }
}

// Rows of nothing but -inf, with columns that do not exist beside them: those must not become entries.
TEST_P(Fused, RowsWithoutFiniteLogits) {
  for (const double beta : {0.5, 0.0, 1.0}) {
    for (const Index vocab : {1, 2, 161}) {
      HostCase host = chosen_logits(2, vocab, beta);
      for (Index v = 0; v < vocab; ++v) host.student_weight.set(v, 0, 1);
      host.student_input.set(1, 0, -std::numeric_limits<double>::infinity());
      host.student_input.set(1, 1, -std::numeric_limits<double>::infinity());
      const StageResult result = DeviceCase(host, GetParam(), false).run();
      EXPECT_TRUE(std::isfinite(result.token_loss[0])) << "beta " << beta << ", vocab " << vocab;
      EXPECT_TRUE(std::isnan(result.token_loss[1])) << "beta " << beta << ", vocab " << vocab;
    }
  }
}

// A token without finite sums is NaN, and marks its group: the other tokens' losses must not change.
TEST_P(Fused, NanMarksAGroup) {
  for (const double value :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Recipe r;
    r.tokens = 700, r.vocab = 500;
    HostCase host = make_case(r);
    const Configure blocks = [](fljsd_config& c) { c.chunk_tokens = 256; };
    DeviceCase clean(host, GetParam(), false, blocks);
    const StageResult want = clean.run();
    host.teacher_input.set(300, 3, value);
    DeviceCase device(host, GetParam(), false, blocks);
    const StageResult got = device.run();
    for (Index t = 0; t < r.tokens; ++t) {
      const auto i = static_cast<std::size_t>(t);
      if (t == 300) {
        EXPECT_TRUE(std::isnan(got.token_loss[i]));
      } else {
        // The general kernel's sums are those of the fast one where references agree; 3.7e-6 is the stage's
        // budget.
        EXPECT_LE(std::abs(got.token_loss[i] - want.token_loss[i]), 2 * 3.7e-6f) << t;
      }
    }
  }
}

// Entries whose logits overflow to -inf do not exist, like those whose logits are finite and as far down. The
// fast kernel's phase of such an entry is NaN, which a sum that is looked at must show.
TEST_P(Fused, EntriesThatOverflow) {
  Recipe r;
  r.tokens = 300, r.vocab = 1003;
  const auto with_entries = [&](double down, bool student, bool teacher) {
    HostCase host = make_case(r);
    const Index last = r.student_hidden - 1;
    for (Index t = 0; t < r.tokens; ++t)
      host.student_input.set(t, last, 0x1p65), host.teacher_input.set(t, last, 0x1p65);
    for (Index v = 0; v < r.vocab; ++v) {
      const double weight = v % 97 == 5 ? down : 0;
      host.student_weight.set(v, last, student ? weight : 0);
      host.teacher_weight.set(v, last, teacher ? weight : 0);
    }
    return DeviceCase(host, GetParam(), false).run(0xff);
  };
  for (const auto& [student, teacher] : {std::pair{true, true}, {true, false}, {false, true}}) {
    const StageResult want = with_entries(-0x1p40, student, teacher);  // logits of -2^105
    const StageResult got = with_entries(-0x1p65, student, teacher);   // -2^130
    for (std::size_t t = 0; t < want.token_loss.size(); ++t) {
      EXPECT_GT(want.token_loss[t], 1e-3f) << t;
      EXPECT_LE(std::abs(got.token_loss[t] - want.token_loss[t]), 2 * 3.7e-6f) << t;  // as above
    }
  }
}

// Both formats, temperatures that scale logits up to overflow, columns that do not exist.
TEST_P(Fused, FormatsTemperaturesAndValidVocab) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const double temperature : {1.0, 0.125, 0.5, 16.0}) {
      Recipe r;
      r.student_dtype = r.teacher_dtype = dtype;
      r.tokens = 70, r.vocab = 1003, r.options.temperature = temperature, r.options.valid_vocab = 801;
      check(GetParam(), make_case(r));
    }
  }
}

// One entry far above all others in each model, at different places: each of the others is negligible, all of
// them together are not where they lie about 16 nats below.
TEST_P(Fused, PeakedRowsWithTails) {
  for (const double below : {12.0, 16.0, 20.0, 23.0, 26.0, 40.0}) {
    for (const double beta : {0.5, 0.1, 0.9}) {
      HostCase host = chosen_logits(2, 20000, beta);
      for (Index v = 0; v < 20000; ++v) {
        host.student_weight.set(v, 0, -below + static_cast<double>(v % 3) / 4);
        host.teacher_weight.set(v, 0, -below - static_cast<double>(v % 7) / 8);
      }
      host.student_weight.set(3, 0, 0);
      host.teacher_weight.set(11, 0, 0);
      check(GetParam(), host);
    }
  }
}

// Gradients of `fused`: with a budget that holds all logits from stored ones; with a byte less, or without a
// budget, logits are computed twice, and the plan is not refused.
TEST(FusedPlan, MemoryDecidesWhetherLogitsAreStored) {
  Recipe r;
  r.tokens = 64, r.vocab = 100000, r.student_hidden = r.teacher_hidden = 17, r.pad = 7;
  const HostCase host = make_case(r);
  std::uint64_t bytes = 0;
  const DeviceCase unfused(host, "unfused", true);
  ASSERT_EQ(fljsd_plan_workspace_bytes(unfused.plan(), FLJSD_FORWARD_BACKWARD, &bytes), FLJSD_OK);
  const auto all = static_cast<Index>(bytes);
  for (const Index budget : {Index{0}, all - 1, all}) {
    DeviceCase device(host, "fused", true, [&](fljsd_config& c) { c.memory_budget = budget; });
    const std::string how = fljsd_plan_describe(device.plan());
    EXPECT_EQ(how.find("all logits stored") != std::string::npos, budget == all) << budget << "\n" << how;
    expect_close(device.run(0xff), host, budget == all ? "unfused" : "fused", 0);
  }
}

// Fault: records of the fused sweep that memory_budget has no room for.
TEST(FusedPlan, KeepsABudget) {
  fljsd_config config;
  ASSERT_EQ(fljsd_config_init(&config, sizeof config), FLJSD_OK);
  config.stage = "fused";
  config.tokens = 8192, config.vocab = 12000, config.student_hidden = config.teacher_hidden = 64;
  std::string how;
  for (const Index budget : {200'000'000, 20'000'000}) {
    config.memory_budget = budget;
    const bool had_room = how.find("forward: fused sweep") != std::string::npos;
    fljsd_plan* plan = nullptr;
    ASSERT_EQ(fljsd_plan_create(&config, &plan), FLJSD_OK) << fljsd_last_error();
    std::uint64_t bytes = 0;
    EXPECT_EQ(fljsd_plan_workspace_bytes(plan, FLJSD_FORWARD, &bytes), FLJSD_OK);
    EXPECT_LE(bytes, static_cast<std::uint64_t>(budget));
    how = fljsd_plan_describe(plan);
    EXPECT_EQ(had_room, how.find("memory_budget is 20000000") != std::string::npos) << how;
    fljsd_plan_destroy(plan);
  }
}

// Fault: the stage that serves unaligned calls takes what was said of the sweep, or of the backward pass, for
// itself: a plan refused for a budget that nobody set, or a workspace forward as large as the budget.
TEST(FusedPlan, WhatServesUnalignedCallsNeedsLittle) {
  for (const char* stage : {"fused", "fused-two-pass"}) {
    for (const bool chunks : {false, true}) {
      fljsd_config config;
      ASSERT_EQ(fljsd_config_init(&config, sizeof config), FLJSD_OK);
      config.stage = stage;
      config.tokens = 8192, config.vocab = 128256, config.student_hidden = config.teacher_hidden = 64;
      config.chunk_vocab = chunks ? 20000 : 0, config.chunk_tokens = chunks ? 1024 : 0;
      config.memory_budget = chunks ? 0 : 8'000'000'000;
      fljsd_plan* plan = nullptr;
      ASSERT_EQ(fljsd_plan_create(&config, &plan), FLJSD_OK) << fljsd_last_error();
      std::uint64_t bytes = 0;
      EXPECT_EQ(fljsd_plan_workspace_bytes(plan, FLJSD_FORWARD, &bytes), FLJSD_OK);
      EXPECT_LE(bytes, 100'000'000u) << fljsd_plan_describe(plan);
      fljsd_plan_destroy(plan);
    }
  }
}

// Fault: gradients are planned with a forward pass beside the sweep's, which nobody can ask for, and which
// refuses the budget for its tiles.
TEST(FusedPlan, GradientsHaveNoForwardPassOfTheirOwn) {
  fljsd_config config;
  ASSERT_EQ(fljsd_config_init(&config, sizeof config), FLJSD_OK);
  config.stage = "fused";
  config.tokens = 1024, config.vocab = 128256, config.student_hidden = config.teacher_hidden = 64;
  config.gradients = FLJSD_STUDENT_WEIGHT_GRAD;
  config.memory_budget = 20'000'000, config.chunk_vocab = 20000;
  fljsd_plan* plan = nullptr;
  const fljsd_status status = fljsd_plan_create(&config, &plan);
  const std::string how = status == FLJSD_OK ? fljsd_plan_describe(plan) : fljsd_last_error();
  fljsd_plan_destroy(plan);
  if (fljsd_stage_available("hopper-gemm", -1) != FLJSD_OK)
    GTEST_SKIP() << "Tiles serve in the sweep's place.";
  EXPECT_EQ(status, FLJSD_OK) << how;
  EXPECT_EQ(how.find("forward: "), how.rfind("forward: ")) << how;
}

// Fault: columns that do not exist become -inf in both models, and their difference NaN.
TEST(FusedPlan, LeavesTinyTemperaturesToChunkedVocab) {
  Recipe r;
  r.options.temperature = 0x1p-30;
  const DeviceCase device(make_case(r), "fused", false);
  if (std::string(fljsd_plan_describe(device.plan())).find("compute capability") != std::string::npos)
    GTEST_SKIP() << fljsd_plan_describe(device.plan());
  EXPECT_NE(std::string(fljsd_plan_describe(device.plan())).find("the temperature is below"),
            std::string::npos)
      << fljsd_plan_describe(device.plan());
}

INSTANTIATE_TEST_SUITE_P(All, Fused, ::testing::Values("fused", "fused-two-pass"), stage_test_name);

}  // namespace
}  // namespace fljsd::testing
