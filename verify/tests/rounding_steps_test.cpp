// SPDX-License-Identifier: Apache-2.0
// Each switch of a pipeline does what it says, and nothing else.
#include "reference/rounding.h"

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "reference/divergence.h"
#include "reference/rounding/row.h"
#include "verify/cases/families.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr Formula formulas[] = {Formula::difference, Formula::log_mixture, Formula::log_mixture_autograd,
                                Formula::softplus, Formula::one_pass};

// A problem only as far as rows need it: formats and labels.
Case tiny_case(DType dtype, Options options = {}) {
  CaseSpec spec;
  spec.family = 2;
  spec.tokens = 3;
  spec.student_hidden = 4;
  spec.vocab = 5;
  spec.dtype = dtype;
  spec.options = options;
  return make_case(spec);
}

// One row through a pipeline.
struct RowRun {
  RowRun(const Pipeline& pipeline, std::vector<double> x, std::vector<double> y, Options options = {},
         DType dtype = DType::bf16, bool ignored = false)
      : dlogits(x.size()) {
    const Case c = tiny_case(dtype, options);
    const RowModel model(pipeline, c.problem(), options, 1);
    w.x = std::move(x);
    w.y = std::move(y);
    loss = model.run(w, ignored, dlogits);
  }
  RowModel::Workspace w;
  std::vector<double> dlogits;
  double loss;
};

Pipeline with_formula(Formula formula, bool guarded = true) {
  Pipeline p;
  p.formula = formula;
  p.guarded = guarded;
  return p;
}

std::vector<double> normal_row(std::size_t vocab, double size, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<double> row(vocab);
  for (double& value : row) {  // a sum of uniforms is near enough
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<double>(engine() >> 11) * 0x1p-53 - 0.5;
    value = static_cast<float>(sum * size);
  }
  return row;
}

bool representable(DType dtype, const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [&](double v) { return round_to(dtype, v) == v; });
}

// Fault: bf16 logits that are not, a bias added after storing, a temperature applied before it.
TEST(Logits, AreStoredTwice) {
  Options options;
  options.temperature = 3;
  const Case c = tiny_case(DType::bf16, options);
  Pipeline p;
  p.logits = p.scaled_logits = Storage::input;
  const std::vector<float> products = {1.00390625f, -700.3f, 0.1f, 1e-30f, 12345.678f};
  const std::vector<double> bias = {0.125, -0.5, 3, 0, -1};
  std::vector<double> x;
  RowModel(p, c.problem(), options, 1).student_logits(std::span<const float>(products), bias, x);
  const float third = 1 / 3.0f;
  for (std::size_t v = 0; v < x.size(); ++v) {
    const double stored = round_to(DType::bf16, products[v] + static_cast<float>(bias[v]));
    EXPECT_EQ(x[v], round_to(DType::bf16, static_cast<float>(stored) * third));
  }

  p.logits = p.scaled_logits = Storage::float64;
  const std::vector<double> products64(products.begin(), products.end());
  RowModel(p, c.problem(), options, 1).student_logits(std::span<const double>(products64), bias, x);
  for (std::size_t v = 0; v < x.size(); ++v) EXPECT_EQ(x[v], (products64[v] + bias[v]) / 3.0);
}

// Fault: temperature 1 costing a rounding.
TEST(Logits, AreLeftAloneAtTemperatureOne) {
  Pipeline p;
  p.scaled_logits = Storage::bf16;
  const Case c = tiny_case(DType::bf16);
  const std::vector<double> products = {1.0 + 0x1p-40};
  std::vector<double> x;
  RowModel(p, c.problem(), {}, 1).student_logits(std::span<const double>(products), {}, x);
  EXPECT_EQ(x[0], products[0]);
}

// Σ e^{x − max} as a block of 1024 threads adds it up.
float block_sum(const std::vector<double>& x, float max) {
  std::vector<float> lanes(1024, 0.0f);
  for (std::size_t v = 0; v < x.size(); ++v) lanes[v % 1024] += std::exp(static_cast<float>(x[v]) - max);
  for (std::size_t half = 512; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

// Fault: a float64 sum inside an fp32 log-softmax, another order of its additions, or max and log-sum added
// up first, which rounds away digits when logits are large.
TEST(LogSoftmax, InFp32IsBitwiseTheStatedSum) {
  const auto x = normal_row(3000, 20, 1), y = normal_row(3000, 20, 2);
  Pipeline p;
  p.log_softmax = Storage::fp32;
  const RowRun run(p, x, y);
  const float max_x = static_cast<float>(*std::max_element(x.begin(), x.end()));
  const float max_y = static_cast<float>(*std::max_element(y.begin(), y.end()));
  const float log_sum_x = std::log(block_sum(x, max_x)), log_sum_y = std::log(block_sum(y, max_y));
  for (std::size_t v = 0; v < x.size(); ++v) {
    const float a = static_cast<float>(x[v]) - max_x, b = static_cast<float>(y[v]) - max_y;
    ASSERT_EQ(run.w.log_q[v], a - log_sum_x);
    ASSERT_EQ(run.w.log_p[v], b - log_sum_y);
    ASSERT_EQ(run.w.d[v], (b - a) - (log_sum_y - log_sum_x));
  }
}

// Fault: a stored log-softmax whose unrounded values are used after all.
TEST(LogSoftmax, StoredAsTheInputIsWhatTheFormulaSees) {
  const auto x = normal_row(200, 20, 3), y = normal_row(200, 20, 4);
  for (DType dtype : {DType::bf16, DType::f16}) {
    Pipeline p;
    p.log_softmax = Storage::input;
    const RowRun run(p, x, y, {}, dtype);
    EXPECT_TRUE(representable(dtype, run.w.log_q));
    EXPECT_TRUE(representable(dtype, run.w.log_p));
    p.log_softmax = Storage::fp32;
    const RowRun fp32(p, x, y, {}, dtype);
    for (std::size_t v = 0; v < x.size(); ++v) {
      ASSERT_EQ(run.w.log_q[v], round_to(dtype, fp32.w.log_q[v]));
      ASSERT_EQ(run.w.d[v], static_cast<float>(run.w.log_p[v]) - static_cast<float>(run.w.log_q[v]));
      ASSERT_EQ(run.w.q[v], std::exp(static_cast<float>(run.w.log_q[v])));
    }
  }
}

// Fault: "as the input" taken for bf16 when the tensors are wider.
TEST(Storage, OfTheInputRoundsNothingBeyondFp32ForWideTensors) {
  const auto x = normal_row(50, 20, 5), y = normal_row(50, 20, 6);
  Pipeline fp32, input;
  fp32.log_softmax = fp32.dlogits = Storage::fp32;
  input.log_softmax = input.dlogits = Storage::input;
  fp32.arithmetic = input.arithmetic = Arithmetic::fp32;
  for (DType dtype : {DType::f32, DType::f64}) {
    const RowRun a(fp32, x, y, {}, dtype), b(input, x, y, {}, dtype);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.dlogits, b.dlogits);
  }
}

TEST(Storage, CommonFormatIsTheWiderOrOneThatHoldsBoth) {
  EXPECT_EQ(common_dtype(DType::bf16, DType::bf16), DType::bf16);
  EXPECT_EQ(common_dtype(DType::bf16, DType::f16), DType::f32);
  EXPECT_EQ(common_dtype(DType::f32, DType::f16), DType::f32);
  EXPECT_EQ(common_dtype(DType::bf16, DType::f64), DType::f64);
  EXPECT_EQ(dtype_of(Storage::input, DType::f16), DType::f16);
  EXPECT_EQ(dtype_of(Storage::bf16, DType::f64), DType::bf16);
}

// A row of models whose tensors have different formats.
RowRun mixed_run(const Pipeline& pipeline, DType student, DType teacher) {
  const auto x = normal_row(60, 10, 17), y = normal_row(60, 10, 18);
  Case c = tiny_case(student);
  const Case other = tiny_case(teacher);
  c.teacher_input = other.teacher_input;
  c.teacher_weight = other.teacher_weight;
  RowRun run(pipeline, x, y);
  run.w.x = x;
  run.w.y = y;
  run.loss = RowModel(pipeline, c.problem(), {}, 1).run(run.w, false, run.dlogits);
  return run;
}

// Fault: one model's format taken for the other's, or the student's dlogits stored as the teacher's tensors
// are.
TEST(Storage, OfTheInputIsEachModelsOwn) {
  Pipeline p;
  p.log_softmax = p.dlogits = Storage::input;
  const RowRun narrow = mixed_run(p, DType::bf16, DType::f32), wide = mixed_run(p, DType::f32, DType::bf16);
  EXPECT_TRUE(representable(DType::bf16, narrow.w.log_q));
  EXPECT_FALSE(representable(DType::bf16, narrow.w.log_p));
  EXPECT_TRUE(representable(DType::bf16, narrow.dlogits));
  EXPECT_FALSE(representable(DType::bf16, wide.w.log_q));
  EXPECT_TRUE(representable(DType::bf16, wide.w.log_p));
  EXPECT_TRUE(representable(DType::f32, wide.dlogits));
  EXPECT_FALSE(representable(DType::bf16, wide.dlogits));
}

// Fault: dlogits stored before the reduction factor or the temperature is in, which changes the rounding; one
// of the two roundings around the temperature missing.
TEST(Dlogits, AreStoredWithFactorAndTemperature) {
  const auto x = normal_row(100, 5, 7), y = normal_row(100, 5, 8);
  Options options;
  options.temperature = 3;
  Pipeline exact;
  exact.arithmetic = Arithmetic::fp32;
  Pipeline once = exact, twice = exact;
  once.dlogits = twice.dlogits = Storage::input;
  twice.scaled_logits_grad = Storage::input;
  Options no_temperature;
  const RowRun plain(exact, x, y, no_temperature);
  const RowRun a(once, x, y, options), b(twice, x, y, options);
  const float third = 1 / 3.0f;
  for (std::size_t v = 0; v < x.size(); ++v) {
    const float g = static_cast<float>(plain.dlogits[v]);
    ASSERT_EQ(a.dlogits[v], round_to(DType::bf16, g * third));
    ASSERT_EQ(b.dlogits[v], round_to(DType::bf16, static_cast<float>(round_to(DType::bf16, g)) * third));
  }
}

// Only at the endpoints it depends on the range; elsewhere it is slow to compute, and asked for again and
// again.
OnePassErrorBound one_pass_bound(double beta, Index vocab, double range) {
  if (beta == 0 || beta == 1) return one_pass_error_bound(OnePassPlan({.beta = beta}), vocab, range);
  static std::map<std::pair<double, Index>, OnePassErrorBound> bounds;
  const auto found = bounds.find({beta, vocab});
  if (found != bounds.end()) return found->second;
  return bounds[{beta, vocab}] = one_pass_error_bound(OnePassPlan({.beta = beta}), vocab);
}

// Fault: a formula that is another function. u = 2^-53. The inputs of every formula are the same log q, log
// p, d of the float64 log-softmax, each within e = u·(4 + 2·range + log vocab) of consistent values. By the
// derivatives of the formulas (rounding_models_test.cpp) D moves by at most 2e, and the terms that are
// summed, at most of size (range + log vocab) in total, are each computed within 20 u. The same holds for a
// gradient entry, whose terms have the size of q_v times that. One-pass statistics are fp32 and have their
// own bound.
RC_GTEST_PROP(Formula, AllAgreeInFloat64, ()) {
  const auto vocab = static_cast<std::size_t>(*rc::gen::elementOf(std::vector<int>{1, 2, 3, 10, 100}));
  const double size = *rc::gen::elementOf(std::vector<double>{1e-6, 1e-2, 1, 10, 40});
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  Options options;
  options.beta = *rc::gen::elementOf(std::vector<double>{0, 1e-3, 0.1, 0.5, 0.9, 1});
  const auto x = normal_row(vocab, size, seed), y = normal_row(vocab, size, seed + 1);
  const RowRun spec(Pipeline{}, x, y, options);
  const double range = 4 * size + std::log(static_cast<double>(vocab));
  const double u = 0x1p-53, allowed = 60 * u * (4 + 2 * range) * (1 + range);
  for (Formula formula : formulas) {
    if (formula == Formula::one_pass) continue;
    const RowRun run(with_formula(formula), x, y, options);
    RC_ASSERT(std::abs(run.loss - spec.loss) <= allowed);
    for (std::size_t v = 0; v < vocab; ++v)
      RC_ASSERT(std::abs(run.dlogits[v] - spec.dlogits[v]) <=
                allowed * (spec.w.q[v] + std::exp(spec.w.log_p[v])));
  }
  const auto bound = one_pass_bound(options.beta, static_cast<Index>(vocab), range);
  RC_ASSERT(std::abs(RowRun(with_formula(Formula::one_pass), x, y, options).loss - spec.loss) <=
            bound.divergence + u);
}

// Fault: a default pipeline that is not the specification.
TEST(Formula, DifferenceInFloat64IsTheSpecificationBitForBit) {
  for (double beta : {0.0, 0.3, 0.5, 0.8, 1.0}) {
    auto x = normal_row(300, 10, 9), y = normal_row(300, 10, 10);
    Options options;
    options.beta = beta;
    const RowRun run(Pipeline{}, x, y, options);
    ASSERT_TRUE(normalise(std::span(x), std::span(y)));
    EXPECT_EQ(run.loss, divergence<double>(x, y, beta));
    const double kl = beta == 0 ? 0 : student_kl<double>(x, y, beta);
    for (std::size_t v = 0; v < x.size(); ++v)
      ASSERT_EQ(run.dlogits[v], gradient_term(LogRatio<double>{x[v], y[v]}, beta, kl));
  }
}

// Fault: fp32 arithmetic that is float64 in disguise (no error at all), or a narrower one. The fp32 result
// must differ from the float64 one, by no more than the bound derived in rounding_models_test.cpp allows
// here: e = 2^-24·(4·range + 4·log vocab + 20) in every log-probability moves D by at most 2e, and summing
// costs 2^-24·40·(range + log vocab).
TEST(Arithmetic, Fp32IsFp32) {
  const auto x = normal_row(500, 10, 11), y = normal_row(500, 10, 12);
  const double exact = RowRun(Pipeline{}, x, y).loss, range = 20 + std::log(500.0);
  for (Formula formula : formulas) {
    Pipeline p = with_formula(formula);
    p.log_softmax = Storage::fp32;
    p.arithmetic = Arithmetic::fp32;
    const RowRun run(p, x, y);
    EXPECT_EQ(run.loss, static_cast<float>(run.loss)) << name(formula);
    EXPECT_TRUE(representable(DType::f32, run.dlogits)) << name(formula);
    EXPECT_NE(run.loss, exact) << name(formula);
    double allowed = 0x1p-24 * (2 * (4 * range + 20) + 40 * range);
    if (formula == Formula::one_pass) allowed += one_pass_error_bound(OnePassPlan({}), 500).divergence;
    EXPECT_LE(std::abs(run.loss - exact), allowed) << name(formula);
  }
}

// Fault: automatic differentiation modelled as the closed form. In bf16 the gradient of log q is a tensor of
// its own: with p = q it is 0 in the closed form, and in the graph too, because its two other parts cancel
// before they are stored. Storing it must change nothing else.
TEST(Autograd, StoresTheGradientOfLogQ) {
  const auto x = normal_row(64, 6, 13), y = normal_row(64, 6, 14);
  Pipeline p = with_formula(Formula::log_mixture_autograd);
  p.log_softmax = Storage::fp32;
  p.arithmetic = Arithmetic::fp32;
  const RowRun unrounded(p, x, y);
  p.log_softmax_grad = Storage::input;
  const RowRun rounded(p, x, y);
  EXPECT_EQ(rounded.loss, unrounded.loss);
  EXPECT_NE(rounded.dlogits, unrounded.dlogits);
  // g is stored with a relative error of 2^-8 at most, and dlogits_v = g_v − q_v·Σ g, so it changes by at
  // most 2^-8·(|g_v| + q_v·Σ|g|) and fp32 noise. Σ|g| <= (1−beta)·(log(1/(1−beta)) + 1/e): see
  // rounding_models_test.cpp.
  const double sum = 0.5 * (std::log(2.0) + 1 / std::exp(1.0));
  for (std::size_t v = 0; v < x.size(); ++v) {
    const double q = unrounded.w.q[v], g = std::abs(unrounded.dlogits[v]) + q * sum;
    EXPECT_LE(std::abs(rounded.dlogits[v] - unrounded.dlogits[v]), 0x1p-8 * (g + q * sum) + 0x1p-18 * q);
  }
}

// The divergence as a function of log q and log p that need not be normalised, as automatic differentiation
// sees it.
double mixture_divergence(const std::vector<double>& log_q, const std::vector<double>& log_p, double beta) {
  double sum = 0;
  for (std::size_t v = 0; v < log_q.size(); ++v) {
    const double q = std::exp(log_q[v]), p = std::exp(log_p[v]), log_m = std::log(beta * p + (1 - beta) * q);
    sum += beta * p * (log_p[v] - log_m) + (1 - beta) * q * (log_q[v] - log_m);
  }
  return sum;
}

// Fault: a path of the graph left out or weighted wrongly. With a normalised q such an error can hide: a
// multiple of q in the gradient of log q disappears in the log-softmax's backward step. With a log-softmax
// stored in bf16, Σ q is not 1, and it shows. Central differences with h = 2^-17 are off by h²/6 times a
// third derivative (at most 10 for these rows) and by 2^-53/h, together less than 2^-33.
TEST(Autograd, IsTheDerivativeAtTheStoredLogSoftmax) {
  const auto x = normal_row(6, 4, 21), y = normal_row(6, 4, 22);
  for (double beta : {0.1, 0.5, 0.8}) {
    Options options;
    options.beta = beta;
    for (Formula formula : {Formula::log_mixture, Formula::log_mixture_autograd}) {
      Pipeline p = with_formula(formula);
      p.log_softmax = Storage::input;
      const RowRun run(p, x, y, options);
      std::vector<double> g(6);
      double sum = 0, h = 0x1p-17;
      for (std::size_t v = 0; v < 6; ++v) {
        auto up = run.w.log_q, down = run.w.log_q;
        up[v] += h;
        down[v] -= h;
        g[v] = (mixture_divergence(up, run.w.log_p, beta) - mixture_divergence(down, run.w.log_p, beta)) /
               (2 * h);
        sum += g[v];
      }
      EXPECT_LE(std::abs(run.loss - mixture_divergence(run.w.log_q, run.w.log_p, beta)), 0x1p-47);
      for (std::size_t v = 0; v < 6; ++v) {
        // log_mixture takes the fp32 softmax for e^{log q}: 2^-22 of it is enough.
        const double allowed = 7 * 0x1p-33 + 0x1p-22 * std::abs(sum);  // of g[v] and of six in the sum
        EXPECT_LE(std::abs(run.dlogits[v] - (g[v] - std::exp(run.w.log_q[v]) * sum)), allowed)
            << name(formula) << beta;
      }
    }
  }
}

// Fault: a NaN that the published formulas give, smoothed over; or one in a guarded pipeline. Both
// probabilities of the second entry underflow in fp32, log M is −inf, and 0·(−inf) is NaN.
TEST(Guard, DecidesWhatAnUnderflowOfBothModelsGives) {
  for (Formula formula : {Formula::log_mixture, Formula::log_mixture_autograd}) {
    Pipeline p = with_formula(formula, false);
    p.log_softmax = Storage::fp32;
    p.arithmetic = Arithmetic::fp32;
    EXPECT_TRUE(std::isnan(RowRun(p, {0, -120}, {0, -120}).loss)) << name(formula);
    p.guarded = true;
    const RowRun guarded(p, {0, -120}, {0, -120});
    EXPECT_EQ(guarded.loss, 0) << name(formula);
    EXPECT_EQ(guarded.dlogits, (std::vector<double>{0, 0})) << name(formula);
    p.guarded = false;
    p.arithmetic = Arithmetic::float64;  // e^-120 is a double
    EXPECT_EQ(RowRun(p, {0, -120}, {0, -120}).loss, 0) << name(formula);
  }
}

// Fault: 0·(−inf) from a vocabulary entry that a model masks out. D = (log(4/3) + log 2·... ) in closed form:
// student (1, 0), teacher (1/2, 1/2), beta = 1/2: M = (3/4, 1/4).
TEST(Guard, DecidesWhatAMaskedEntryGives) {
  const double exact =
      0.5 * (0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(0.5 / 0.25)) + 0.5 * std::log(1 / 0.75);
  for (Formula formula : formulas) {
    const RowRun guarded(with_formula(formula), {0, -infinity}, {0, 0});
    const bool one_pass = formula == Formula::one_pass;
    const double allowed = one_pass ? one_pass_error_bound(OnePassPlan({}), 2).divergence : 8 * 0x1p-53;
    EXPECT_LE(std::abs(guarded.loss - exact), allowed) << name(formula);
    EXPECT_EQ(guarded.dlogits[1], 0) << name(formula);
  }
  for (Formula formula : {Formula::log_mixture, Formula::log_mixture_autograd})
    EXPECT_TRUE(std::isnan(RowRun(with_formula(formula, false), {0, -infinity}, {0, 0}).loss))
        << name(formula);
}

// Fault: −inf − (−inf) for the difference of an entry that neither model has.
TEST(Guard, AnEntryThatNeitherModelHasDiffersByNothing) {
  for (Storage storage : {Storage::float64, Storage::fp32, Storage::bf16}) {
    Pipeline p;
    p.log_softmax = storage;
    const RowRun run(p, {0, -infinity, 1}, {1, -infinity, 0});
    EXPECT_EQ(run.w.d[1], 0);
    EXPECT_EQ(run.w.q[1], 0);
    EXPECT_EQ(run.dlogits[1], 0);
  }
}

// Fault: a constant that the one-pass statistics missed and that is used all the same. Nearly disjoint
// supports: kappa has an absolute error of about 1e-6, the gradient is smaller than that.
TEST(OnePass, SweepsARowAgainWhenItsConstantMissed) {
  const std::vector<double> x = {0, -1, -30, -31}, y = {-30, -31, 0, -1};
  const std::vector<float> x32(x.begin(), x.end()), y32(y.begin(), y.end());
  const OnePassPlan plan({.beta = 0.5});
  std::vector<float> expected(4);
  const OnePassRow row = one_pass_row(x32, y32, plan);
  const OnePassCertificate certificate = one_pass_gradient(x32, y32, row, plan, expected);
  ASSERT_TRUE(certificate.missed);
  one_pass_gradient(x32, y32, with_swept_constant(row, certificate, plan), plan, expected);
  const RowRun run(with_formula(Formula::one_pass), x, y);
  EXPECT_EQ(run.dlogits, std::vector<double>(expected.begin(), expected.end()));
}

// Fault: a row without a distribution that gets a finite loss.
TEST(Guard, RowsWithoutADistributionAreNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (Formula formula : formulas) {
    for (bool guarded : {true, false}) {
      for (Storage log_softmax : {Storage::float64, Storage::fp32, Storage::bf16}) {
        Pipeline p = with_formula(formula, guarded);
        p.log_softmax = log_softmax;
        for (const auto& bad : {std::vector<double>{0, nan}, std::vector<double>{0, infinity},
                                std::vector<double>{-infinity, -infinity}}) {
          EXPECT_TRUE(std::isnan(RowRun(p, bad, {0, 1}).loss)) << name(formula);
          EXPECT_TRUE(std::isnan(RowRun(p, {0, 1}, bad).loss)) << name(formula);
          for (double value : RowRun(p, bad, {0, 1}).dlogits) EXPECT_TRUE(std::isnan(value)) << name(formula);
        }
      }
    }
  }
}

// Fault: an ignored row that contributes. Finite, it must give exactly 0 whatever the formula.
TEST(IgnoredRow, HasNoGradient) {
  const auto x = normal_row(20, 5, 15), y = normal_row(20, 5, 16);
  for (Formula formula : formulas) {
    const RowRun run(with_formula(formula, false), x, y, {}, DType::bf16, true);
    for (double value : run.dlogits) EXPECT_EQ(value, 0) << name(formula);
  }
}

// Fault: a beta that only rounds to an endpoint in fp32 taken for the endpoint, where D jumps from 0 to a KL
// divergence. D <= h(beta) = about 1e-10·24.
TEST(Arithmetic, TinyBetaIsNotAnEndpoint) {
  for (double beta : {1e-50, 1 - 1e-10}) {
    Options options;
    options.beta = beta;
    for (Formula formula : {Formula::difference, Formula::log_mixture, Formula::softplus}) {
      Pipeline p = with_formula(formula);
      p.log_softmax = Storage::fp32;
      p.arithmetic = Arithmetic::fp32;
      EXPECT_LE(std::abs(RowRun(p, {0, 3}, {3, 0}, options).loss), 0x1p-24 * 40 * 10)
          << name(formula) << beta;
    }
  }
}

// Fault: a step that is left out of the attribution or sets a switch of another step.
TEST(Waterfall, SetsEverySwitchInTheStepItBelongsTo) {
  for (const RoundingModel& model : rounding_models()) {
    const std::vector<Pipeline> stages = waterfall(model.pipeline);
    ASSERT_EQ(stages.size(), all_steps().size());
    EXPECT_TRUE(stages.back() == model.pipeline) << model.name;
    Pipeline reversed;
    for (std::size_t i = all_steps().size(); i-- > 0;)
      reversed = with_step(reversed, model.pipeline, all_steps()[i]);
    EXPECT_TRUE(reversed == model.pipeline) << model.name;
    for (Step step : all_steps()) {
      EXPECT_TRUE(with_step(model.pipeline, model.pipeline, step) == model.pipeline);
      EXPECT_FALSE(describe(model.pipeline, step).empty());
    }
  }
  EXPECT_EQ(describe(find_rounding_model("liger")->pipeline, Step::logits),
            "logits summed in fp32, stored in the input's format");
}

// Fault: another rule for the chunks. 1024 … 8192 tokens of the published shape come in 32 chunks.
TEST(Chunks, FollowFromTheSizes) {
  for (Index tokens : {1024, 2048, 4096, 8192}) EXPECT_EQ(chunk_tokens(tokens, 128256, 4096), tokens / 32);
  EXPECT_EQ(chunk_tokens(16384, 32000, 4096), 2048);
  EXPECT_EQ(chunk_tokens(1000, 100, 200), 1024);  // one chunk
  EXPECT_EQ(chunk_tokens(5, 128256, 4096), 1);
  EXPECT_EQ(chunk_tokens(0, 10, 10), 1);
}

}  // namespace
}  // namespace fljsd
