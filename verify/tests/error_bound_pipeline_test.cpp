// SPDX-License-Identifier: Apache-2.0
// The bounds of whole pipelines (error_bound.h) and the budgets made of them (verify/judge/budget.h): right
// implementations keep them, also where a case was made to break them, and wrong ones do not.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "reference/chernoff.h"
#include "reference/chernoff/worst_case.h"
#include "reference/enclosure.h"
#include "reference/error_bound.h"
#include "reference/rounding.h"
#include "verify/cases/families.h"
#include "verify/judge/verdict.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

CaseSpec spec_of(int family, std::uint64_t seed) {
  CaseSpec spec;
  spec.family = family;
  spec.tokens = 5;
  spec.student_hidden = 24;
  spec.vocab = 40;
  spec.seed = seed;
  return spec;
}

Truth truth_of(const Case& c) {
  return {linear_jsd<double>(c.problem(), c.options, Wanted::all()), false};
}

std::string told(const Verdict& verdict, const std::string& what) {
  return what + "\n" + format(verdict);
}

// Fault: a step of a published pipeline that its class's budget leaves out: a second storage of dlogits at a
// temperature, weight gradients summed in bf16, endpoints, fp16 ranges. Every family in which the pipelines
// give numbers, every class; held to the worst case too, which leaves nothing to luck.
TEST(Budgets, EveryModelKeepsThoseOfItsClass) {
  int judged = 0;
  for (int family : {1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 14, 16}) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      CaseSpec spec = spec_of(family, seed);
      spec.options.beta = std::vector{0.5, 0.1, 0.9, 0.0, 1.0, 0.999}[seed - 1];
      spec.options.temperature = std::vector{1.0, 0.7, 3.0}[seed % 3];
      spec.options.reduction = std::vector{Reduction::batchmean, Reduction::sum, Reduction::none}[seed % 3];
      spec.dtype = std::vector{DType::bf16, DType::f16, DType::f32, DType::f64}[seed % 4];
      spec.with_bias = seed % 2 == 0;
      const Case c = make_case(spec);
      const Truth truth = truth_of(c);
      const Budgets budgets = make_budgets(c, truth, Wanted::all());
      Budgets worst = budgets;
      worst.allowed = budgets.worst_case;
      for (const RoundingModel& model : rounding_models()) {
        // Probabilities that underflow in both models, disjoint supports: 0·(−inf), a wrong answer.
        if (!model.pipeline.guarded && (family == 5 || family == 6)) continue;
        const Result result = run_pipeline(c.problem(), c.options, Wanted::all(), model.pipeline);
        const std::string what =
            std::string(model.name) + " family " + std::to_string(family) + " seed " + std::to_string(seed);
        const Verdict likely = judge(budgets, truth, result, model.accuracy_class);
        EXPECT_TRUE(likely.pass()) << told(likely, what);
        const Verdict certain = judge(worst, truth, result, model.accuracy_class);
        EXPECT_TRUE(certain.pass()) << told(certain, what + ", worst case");
        ++judged;
      }
    }
  }
  EXPECT_GE(judged, 500);
}

// Fault: a budget that a wrong answer keeps. On language-model-like rows float64 and fp32 logits must convict
// the next coarser class, a gradient of zeros, one that is 10 % too long, and models that are exchanged.
TEST(Budgets, WrongAnswersBreakThem) {
  CaseSpec spec = spec_of(3, 5);
  spec.tokens = 8;
  spec.student_hidden = 64;
  spec.vocab = 500;
  spec.options.beta = 0.3;
  const Case c = make_case(spec);
  const Truth truth = truth_of(c);
  const Budgets budgets = make_budgets(c, truth, Wanted::all());
  const auto run = [&](const char* model) {
    return run_pipeline(c.problem(), c.options, Wanted::all(), find_rounding_model(model)->pipeline);
  };
  const auto convicts = [&](const Result& result, AccuracyClass accuracy_class, const char* what) {
    const Verdict verdict = judge(budgets, truth, result, accuracy_class);
    EXPECT_FALSE(verdict.pass()) << told(verdict, std::string(what) + " as " + name(accuracy_class));
  };
  convicts(run("fp32-logits"), AccuracyClass::float64, "fp32");
  convicts(run("one-pass-bf16"), AccuracyClass::fp32_logits, "bf16 logits");
  convicts(run("torch-eager-bf16"), AccuracyClass::fp32_logits, "eager");
  Case swapped = c;
  swapped.options.beta = 0.7;
  for (const AccuracyClass k : {AccuracyClass::float64, AccuracyClass::fp32_logits}) {
    Result zero = truth.result;
    zero.student_input_grad.setZero();
    convicts(zero, k, "gradient of zeros");
    Result longer = truth.result;
    longer.student_input_grad *= 1.1;
    convicts(longer, k, "gradient 10 % too long");
    Result weight = truth.result;
    weight.student_weight_grad *= 1.1;
    convicts(weight, k, "weight gradient 10 % too long");
    convicts(truth_of(swapped).result, k, "beta for 1 − beta");
  }
}

// What the budget of bf16 logits can still convict: losses of zeros, gradients that are a hundred times too
// long, and a weight gradient of zeros. (It does not convict every gradient of zeros: docs/error_analysis.md,
// "What the budgets can tell".)
TEST(Budgets, Bf16LogitsConvictWhatIsFarOff) {
  CaseSpec spec = spec_of(3, 5);
  spec.tokens = 8;
  spec.student_hidden = 64;
  spec.vocab = 500;
  const Case c = make_case(spec);
  const Truth truth = truth_of(c);
  const Budgets budgets = make_budgets(c, truth, Wanted::all());
  Result wrong = truth.result;
  wrong.student_weight_grad.setZero();
  EXPECT_FALSE(judge(budgets, truth, wrong, AccuracyClass::bf16_logits).pass());
  wrong = truth.result;
  wrong.student_input_grad *= 100;
  EXPECT_FALSE(judge(budgets, truth, wrong, AccuracyClass::bf16_logits).pass());
  wrong = truth.result;
  std::fill(wrong.token_loss.begin(), wrong.token_loss.end(), 0);
  EXPECT_FALSE(judge(budgets, truth, wrong, AccuracyClass::bf16_logits).pass());
}

// One token, hidden size 1, with these logits in float32 (and bias as given).
Case logit_case(DType dtype, const std::vector<double>& x, const std::vector<double>& y) {
  Case c;
  const auto vocab = static_cast<Index>(x.size());
  c.student_input = c.teacher_input = make_tensor(dtype, {1, 1}, {1});
  c.student_weight = make_tensor(dtype, {vocab, 1}, x);
  c.teacher_weight = make_tensor(dtype, {vocab, 1}, y);
  return c;
}

ErrorBound class_bound(const Case& c, AccuracyClass k) {
  const Truth truth = truth_of(c);
  const ClassContract& contract = contracts()[static_cast<std::size_t>(k)];
  return error_bounds(c.problem(), c.options, Wanted::all(), truth.result, {&contract.arithmetic, 1}).front();
}

// Fault: an allowance for the one-pass rule that its own worst row breaks.
TEST(Budgets, WorstRowsOfTheOnePassRuleKeepThem) {
  const double allowance = contracts()[1].arithmetic.formula.approximation;
  for (double beta : {1e-4, 0.1, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.9}) {
    const OnePassPlan plan({.beta = beta});
    for (Kernel kernel : {Kernel::divergence, Kernel::student_kl})
      EXPECT_LE(worst_case(kernel, plan.quadrature()).bound, allowance) << beta;
  }
}

// Fault: a bound relative to the double tier's own value where that value is off by O(1). The exact logits
// are equal (large products cancel), float64 sees differences of thousands.
TEST(DoubleTierBound, HoldsWhereLogitsHaveNoCorrectDigit) {
  int far_off = 0;
  for (int i = 0; i < 60; ++i) {
    Case c;
    const double big = std::ldexp(1 + i / 64.0, 30);
    c.student_input = c.teacher_input = make_tensor(DType::f64, {1, 3}, {big, 1 + i / 7.0, big});
    // Products of 2^90 with all bits cancel to something of order 1, whose digits are lost.
    const double w = std::ldexp(1 + i / 61.0, 60);
    c.student_weight = make_tensor(DType::f64, {2, 3}, {w, i / 5.0, -w, -w, 0.3, w});
    c.teacher_weight =
        make_tensor(DType::f64, {2, 3}, {w, -i / 5.0, -w * (1 + 0x1p-52 * (i % 3)), 0, 0.1, 0});
    const Result result = linear_jsd<double>(c.problem(), c.options, Wanted::all());
    const ErrorBound bound = double_tier_bound(c.problem(), c.options, Wanted::all(), result);
    const Enclosure truth = *certify(c.problem(), c.options).loss;
    const double error = std::max(truth.lo - *result.loss, *result.loss - truth.hi);
    EXPECT_LE(error, bound.loss) << i;
    if (error > 0.3) ++far_off;
  }
  EXPECT_GE(far_off, 1);  // else the case is tame
}

// Fault: the rounding of a float64 bias to fp32 beside bf16 tensors, left out. Products are 0 here, and the
// bias is rounded three times at most: as an operand, when it is added, and when the logit is stored.
TEST(Budgets, AFloat64BiasMayBeRounded) {
  Case c = logit_case(DType::bf16, {0, 0}, {0, 0});
  c.student_bias = make_tensor(DType::f64, {2}, {1e6 + 0.03, 0});
  c.teacher_bias = make_tensor(DType::f64, {2}, {1e6, 0});
  EXPECT_GE(class_bound(c, AccuracyClass::fp32_logits).logit, 3 * 0x1p-24 * 1e6);
  EXPECT_LT(class_bound(c, AccuracyClass::float64).logit, 1e-9);
}

// Fault: a finite budget where fp32 sums of the gradient overflow although the gradient itself does not.
// Weights of 3e38 cancel in dX = Σ g·w only after a partial sum has left the range.
TEST(Budgets, PartialSumsOfGradientsMayOverflow) {
  Case c = logit_case(DType::f32, {3e38, 3e38, 3e38, 3e38}, {0, 0, 0, 0});
  c.student_input = make_tensor(DType::f32, {1, 1}, {1e-38});
  c.teacher_weight = make_tensor(DType::f32, {4, 1}, {90, 90, -90, -90});
  c.options.temperature = 0.25;
  c.options.beta = 0;
  EXPECT_EQ(class_bound(c, AccuracyClass::fp32_logits).student_input_grad[0], infinity);
  EXPECT_LT(class_bound(c, AccuracyClass::float64).student_input_grad[0], infinity);
}

// Fault: a finite budget for a sum of losses that the stored format cannot hold: each token's KL is 20000,
// the sum of four is beyond fp16.
TEST(Budgets, AReducedLossMayOverflowWhatItIsStoredIn) {
  Case c = logit_case(DType::f16, {20000, 0}, {0, 20000});
  c.student_input = c.teacher_input = make_tensor(DType::f16, {4, 1}, {1, 1, 1, 1});
  c.options.beta = 0;
  c.options.reduction = Reduction::sum;
  EXPECT_EQ(class_bound(c, AccuracyClass::bf16_logits).loss, infinity);
  EXPECT_LT(class_bound(c, AccuracyClass::fp32_logits).loss, 1e5);
}

// Fault: dlogits of float64 tensors that fp32 flushes to zero at no cost. With 2^100 for a temperature they
// are below fp32's normal range, all of the gradient may be lost, and the weights would have brought it back.
TEST(Budgets, DlogitsOfFloat64TensorsMayBeFlushed) {
  Case c = logit_case(DType::f64, {0x1p100, 0, 0}, {0, 0, 0});
  c.student_input = make_tensor(DType::f64, {1, 1}, {-28});
  c.options.temperature = 0x1p100;
  const Truth truth = truth_of(c);
  const double lost = std::abs(truth.result.student_input_grad(0, 0));
  EXPECT_LT(lost, 0x1p-30);
  EXPECT_GT(lost, 0);
  EXPECT_GE(class_bound(c, AccuracyClass::fp32_logits).student_input_grad[0], lost);
}

// Fault: one token near the end of the range that excuses NaN anywhere in the case. The first token's logits
// are moderate, the second one's differences are 3·2^126: e^{x − max}·(difference), three times, is beyond
// fp32, the loss is not. (An implementation that normalises its sums at the end met exactly that.)
TEST(Budgets, OverflowIsExcusedTokenByToken) {
  Case c = logit_case(DType::f32, {0, 0.25, 0.5}, {0, -1, -0.5});
  c.student_input = make_tensor(DType::f32, {2, 1}, {1, 1});
  c.teacher_input = make_tensor(DType::f32, {2, 1}, {1, 0x1.8p127});
  c.options.beta = 1;
  c.options.reduction = Reduction::none;
  const Truth truth = truth_of(c);
  const Budgets budgets = make_budgets(c, truth, Wanted::all());
  const ErrorBound& bound = budgets.of(AccuracyClass::fp32_logits);
  EXPECT_EQ(bound.may_overflow, (std::vector<bool>{false, true}));
  EXPECT_LT(bound.token_loss[0], 1e-3);
  EXPECT_LT(bound.student_input_grad[0], 1e-3);
  EXPECT_EQ(bound.token_loss[1], infinity);
  EXPECT_EQ(bound.student_input_grad[1], infinity);
  EXPECT_EQ(bound.student_weight_grad[0], infinity);  // it sums over both
  EXPECT_EQ(budgets.of(AccuracyClass::float64).may_overflow, (std::vector<bool>{false, false}));

  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t t : {0u, 1u}) {
    Result result = truth.result;
    result.token_loss[t] = nan;
    EXPECT_EQ(judge(budgets, truth, result, AccuracyClass::fp32_logits).pass(), t == 1) << t;
    result = truth.result;
    result.student_input_grad(static_cast<Index>(t), 0) = nan;
    EXPECT_EQ(judge(budgets, truth, result, AccuracyClass::fp32_logits).pass(), t == 1) << t;
  }
}

// Fault: an infinite loss that must be met although fp32 may overflow on the way, or one that need not be met
// because another token may overflow.
TEST(Budgets, AnInfiniteLossMayBeMissedOnlyByOverflow) {
  Case c = logit_case(DType::f32, {0, 0.25, 0.5}, {0, -1, -0.5});
  c.student_input = make_tensor(DType::f32, {2, 1}, {1, 1});
  c.teacher_input = make_tensor(DType::f32, {2, 1}, {1, 0x1.8p127});
  c.teacher_bias = make_tensor(DType::f32, {3}, {-infinity, 0, 0});
  c.options.beta = 1;
  c.options.reduction = Reduction::none;
  const Truth truth = truth_of(c);
  ASSERT_EQ(truth.result.token_loss, (std::vector<double>{infinity, infinity}));
  const Budgets budgets = make_budgets(c, truth, Wanted::all());
  for (std::size_t t : {0u, 1u}) {
    Result result = truth.result;
    result.token_loss[t] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(judge(budgets, truth, result, AccuracyClass::fp32_logits).pass(), t == 1) << t;
  }
}

// Fault: a gradient whose norm is beyond float64, though its elements are not: relative to that norm, an
// infinite budget is NaN, which convicts.
TEST(Budgets, ANormBeyondFloat64IsNotDividedBy) {
  Case c = logit_case(DType::f64, {0, 0, 0}, {0, 0, 0});
  c.student_input = make_tensor(DType::f64, {1, 12}, std::vector<double>(12, 0));
  std::vector<double> weight(36, 1.5e308);
  std::fill_n(weight.begin(), 12, -1.5e308);
  c.student_weight = make_tensor(DType::f64, {3, 12}, weight);
  c.teacher_weight = make_tensor(DType::f64, {3, 1}, {3, 0, 0});
  c.options.beta = 0;
  const Truth truth = truth_of(c);
  ASSERT_TRUE(truth.result.student_input_grad.allFinite());
  Result result = truth.result;
  result.student_input_grad.setConstant(std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(judge(make_budgets(c, truth, Wanted::all()), truth, result, AccuracyClass::fp32_logits).pass());
}

// Fault: a bound that multiplies large inputs of one column with large weights of another, which no dot
// product does: then nobody is convicted of dropping subnormal inputs, because nothing finite bounds such
// logits. A column of zeros adds nothing either, however large the other matrix is there.
TEST(Budgets, LargeInputsDoNotMeetLargeWeightsOfOtherColumns) {
  Case c = logit_case(DType::bf16, {0, 0}, {0, 0});
  c.student_input = make_tensor(DType::bf16, {1, 4}, {0x1p-130, 0x1p120, 0, 0x1p120});
  c.student_weight =
      make_tensor(DType::bf16, {2, 4}, {0x1p120, 0x1p-120, 0x1p120, 0, -0x1p120, 0x1p-119, 0x1p120, 0});
  const ErrorBound fp32 = class_bound(c, AccuracyClass::fp32_logits);
  const ErrorBound float64 = class_bound(c, AccuracyClass::float64);
  EXPECT_LE(float64.logit, 8 * 0x1p-53 * 4);  // four terms, of at most 2 together
  EXPECT_GE(fp32.logit, 0x1p-10);             // which may flush the subnormal: 2^-10 is lost
  EXPECT_LE(fp32.token_loss[0], 1);
}

}  // namespace
}  // namespace fljsd
