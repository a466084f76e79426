// SPDX-License-Identifier: Apache-2.0
// The certified tier: enclosures hold the truth, settle what can be settled, and guess nothing.
#include "reference/enclosure.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "verify/cases/recipe.h"
#include "verify/tests/small_problem.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Interval<40> interval(const char* lo, const char* hi) {
  Interval<40> result;
  mpfr_set_str(result.backend().left_data(), lo, 0, MPFR_RNDD);
  mpfr_set_str(result.backend().right_data(), hi, 0, MPFR_RNDU);
  return result;
}

// Whether the decimals lie outside the interval, read back with far more digits than they have.
void expect_decimals_outward(const Enclosure& enclosure, const Interval<40>& x) {
  mpfr_t text;
  mpfr_init2(text, 2000);
  mpfr_set_str(text, enclosure.lo_text.c_str(), 10, MPFR_RNDU);
  EXPECT_TRUE(mpfr_lessequal_p(text, x.backend().left_data())) << enclosure.lo_text;
  mpfr_set_str(text, enclosure.hi_text.c_str(), 10, MPFR_RNDD);
  EXPECT_TRUE(mpfr_greaterequal_p(text, x.backend().right_data())) << enclosure.hi_text;
  mpfr_clear(text);
}

// Catches: bounds rounded inward, or to nearest, in decimal or in double.
TEST(Enclose, RoundsOutward) {
  const Interval<40> third = Interval<40>(1) / 3;
  for (const Interval<40>& x :
       {third, Interval<40>(-third), Interval<40>(third * 1e-300), Interval<40>(1e300 / third),
        Interval<40>(1), Interval<40>(0.1), interval("-1", "0x1p-3000")}) {
    const Enclosure enclosure = enclose(x);
    expect_decimals_outward(enclosure, x);
    EXPECT_LE(enclosure.lo, pivot(x));
    EXPECT_GE(enclosure.hi, pivot(x));
    EXPECT_TRUE(mpfr_cmp_d(x.backend().left_data(), enclosure.lo) >= 0);
    EXPECT_TRUE(mpfr_cmp_d(x.backend().right_data(), enclosure.hi) <= 0);
  }
  EXPECT_EQ(enclose(third).hi, std::nextafter(enclose(third).lo, 1));
  EXPECT_EQ(enclose(third).lo_text, "3.333333333333333333333333333333333333333e-1");
  EXPECT_EQ(enclose(third).hi_text, "3.333333333333333333333333333333333333334e-1");
  EXPECT_EQ(enclose(Interval<40>(-20)).lo_text, "-2e1");
  EXPECT_EQ(enclose(Interval<40>(1.5)).hi_text, "1.5");
  EXPECT_EQ(enclose(Interval<40>(0)).lo_text, "0");
}

// Catches: a value settled although its ends round to different doubles, or not settled although they agree.
TEST(Enclose, SettlesOnlyWhatRoundsToOneDouble) {
  EXPECT_EQ(enclose(interval("0x1.00000000000000001p0", "0x1.00000000000007fp0")).rounds_to, 1.0);
  EXPECT_EQ(enclose(interval("0x0.ffffffffffffffff8p0", "0x1.00000000000000001p0")).rounds_to,
            1.0);  // around it
  // The boundary between 1 and the next double is 1 + 2^-53; itself, it is a tie and belongs to the even one.
  EXPECT_EQ(enclose(interval("0x1.00000000000008p0", "0x1.00000000000008p0")).rounds_to, 1.0);
  EXPECT_FALSE(enclose(interval("0x1.00000000000007fp0", "0x1.000000000000081p0")).rounds_to);
  EXPECT_FALSE(enclose(interval("-0x1p-200", "0x1p-200")).rounds_to);
  EXPECT_EQ(enclose(interval("0", "0")).rounds_to, 0.0);
  const Enclosure tiny = enclose(interval("-0x1p-2000", "0x1p-2000"));
  ASSERT_TRUE(tiny.rounds_to);
  EXPECT_FALSE(std::signbit(*tiny.rounds_to));
  const Enclosure unknown = enclose(Interval<40>(nan));
  EXPECT_FALSE(unknown.rounds_to);
  EXPECT_EQ(unknown.lo, -infinity);
  EXPECT_EQ(unknown.hi, infinity);
  EXPECT_EQ(enclose(Interval<40>(infinity)).rounds_to, infinity);
}

void expect_encloses(const Enclosure& enclosure, const Real100& truth) {
  // The truth itself is known to 100 digits of the numbers it was summed from, which are below 1e3.
  const Real100 slack = 1e-90;
  EXPECT_TRUE(mpfr_cmp_d(Real100(truth + slack).backend().data(), enclosure.lo) >= 0) << enclosure.lo_text;
  EXPECT_TRUE(mpfr_cmp_d(Real100(truth - slack).backend().data(), enclosure.hi) <= 0) << enclosure.hi_text;
  if (enclosure.rounds_to && std::abs(*enclosure.rounds_to) > 1e-60) {
    EXPECT_EQ(*enclosure.rounds_to, pivot(truth));
  }
}

// Catches: an enclosure that misses the truth, an index mixed up between values, a value refined twice or
// never.
RC_GTEST_PROP(Certify, EnclosesTheHundredDigitResult, (std::uint64_t seed)) {
  Numbers n = random_numbers(seed);
  for (double beta : {0.0, 0.1, 0.5, 1.0}) {
    n.options.beta = beta;
    const Case c = n.make();
    const CertifiedResult certified = certify(c.problem(), c.options, Wanted::all());
    const BasicResult<Real100> truth = linear_jsd<Real100>(c.problem(), c.options, Wanted::all());
    RC_ASSERT(certified.counted == truth.counted);
    RC_ASSERT(certified.loss.has_value() == truth.loss.has_value());
    if (truth.loss) {
      expect_encloses(*certified.loss, *truth.loss);
      RC_ASSERT(certified.loss->rounds_to.has_value());
    }
    RC_ASSERT(certified.token_loss.size() == truth.token_loss.size());
    for (std::size_t t = 0; t < truth.token_loss.size(); ++t) {
      expect_encloses(certified.token_loss[t], truth.token_loss[t]);
      RC_ASSERT(certified.token_loss[t].rounds_to.has_value());
    }
    const auto expect_all = [&](const std::vector<Enclosure>& enclosures,
                                const RowMajorMatrix<Real100>& values) {
      RC_ASSERT(static_cast<Index>(enclosures.size()) == values.size());
      for (Index i = 0; i < values.size(); ++i) {
        const Enclosure& enclosure = enclosures[static_cast<std::size_t>(i)];
        expect_encloses(enclosure, values.data()[i]);
        // A sum that cancels exactly cannot settle; everything else here does.
        RC_ASSERT(enclosure.rounds_to || abs(values.data()[i]) < 1e-90);
      }
    };
    expect_all(certified.student_input_grad, truth.student_input_grad);
    expect_all(certified.student_weight_grad, truth.student_weight_grad);
    RC_ASSERT(certified.student_bias_grad.size() == truth.student_bias_grad.size());
    for (std::size_t v = 0; v < truth.student_bias_grad.size(); ++v)
      expect_encloses(certified.student_bias_grad[v], truth.student_bias_grad[v]);
  }
  RC_ASSERT(!testing::Test::HasFailure());
}

// Catches: intervals of logits that are as wide as their digits tell relative to logits of 1e302, which
// leaves nothing of e^{x − max}: no value of this case was settled.
TEST(Certify, SettlesLogitsOfAnySize) {
  const Case c = make_case(parse_recipe(
      "family=subnormal tokens=5 hidden=15 vocab=2 seed=481519 dtype=f16 teacher_input=f64 student_bias=f32 "
      "bias=teacher beta=0.3333333333333333 temperature=3.210979626451659"));
  const CertifiedResult result = certify(c.problem(), c.options, Wanted::all());
  ASSERT_TRUE(result.loss);
  EXPECT_TRUE(result.loss->rounds_to);
  for (const auto* values : {&result.token_loss, &result.student_input_grad, &result.student_weight_grad,
                             &result.student_bias_grad}) {
    EXPECT_FALSE(values->empty());
    // Where two weights are equal, an input's gradient is a sum that cancels exactly, and keeps the width of
    // its terms: of 160 digits, numbers of at most 100.
    for (const Enclosure& enclosure : *values)
      EXPECT_TRUE(enclosure.rounds_to || enclosure.hi - enclosure.lo < 1e-155) << enclosure.lo_text;
  }
}

void expect_zero(const Enclosure& enclosure) {
  EXPECT_EQ(enclosure.lo, 0);
  EXPECT_EQ(enclosure.hi, 0);
  EXPECT_EQ(enclosure.rounds_to, 0.0);
  EXPECT_EQ(enclosure.lo_text, "0");
  EXPECT_EQ(enclosure.hi_text, "0");
}
void expect_zero(const CertifiedResult& result) {
  if (result.loss) expect_zero(*result.loss);
  for (const auto* values : {&result.token_loss, &result.student_input_grad, &result.student_weight_grad,
                             &result.student_bias_grad}) {
    EXPECT_FALSE(values->empty());
    for (const Enclosure& enclosure : *values) expect_zero(enclosure);
  }
}

// A teacher that has the student's weights and one more hidden unit, which adds the same to each logit of a
// token.
Numbers equal_distributions() {
  Numbers n = numbers(1, 3, 7, 4, 5);
  for (Index v = 0; v < n.vocab; ++v) {
    for (Index h = 0; h < 4; ++h)
      n.teacher_weight[static_cast<std::size_t>(v * 5 + h)] =
          n.student_weight[static_cast<std::size_t>(v * 4 + h)];
    n.teacher_weight[static_cast<std::size_t>(v * 5 + 4)] = 0.1;
  }
  for (Index t = 0; t < n.tokens; ++t) {
    for (Index h = 0; h < 4; ++h)
      n.teacher_input[static_cast<std::size_t>(t * 5 + h)] =
          n.student_input[static_cast<std::size_t>(t * 4 + h)];
    n.teacher_input[static_cast<std::size_t>(t * 5 + 4)] = 1e7 / 3;
  }
  n.teacher_bias = n.student_bias;
  n.options.temperature = 0.7;
  return n;
}

// Catches: p = q decided on rounded numbers, entries that are impossible in both models compared by
// subtraction.
TEST(Certify, EqualDistributionsGiveExactlyZero) {
  for (double beta : {0.0, 0.3, 1.0}) {
    Numbers n = equal_distributions();
    n.options.beta = beta;
    const Case plain = n.make();
    const CertifiedResult result = certify(plain.problem(), plain.options, Wanted::all());
    expect_zero(result);
    EXPECT_EQ(result.digits, 0u);
    n.student_bias[0] = n.teacher_bias[0] = n.student_bias[5] = n.teacher_bias[5] = -infinity;
    const Case masked = n.make();
    expect_zero(certify(masked.problem(), masked.options, Wanted::all()));
    for (const Enclosure& loss : certify_token_losses(masked.problem(), masked.options, {2, 0}))
      expect_zero(loss);
  }
}

// Catches: nearly equal distributions taken for equal ones.
TEST(Certify, TheSmallestDifferenceCounts) {
  Numbers n = equal_distributions();
  n.teacher_bias[6] = std::nextafter(n.teacher_bias[6], infinity);
  const Case c = n.make();
  const CertifiedResult result = certify(c.problem(), c.options);
  for (const Enclosure& loss : result.token_loss) {
    EXPECT_GT(loss.lo, 0);
    EXPECT_LT(loss.hi, 1e-30);
    EXPECT_TRUE(loss.rounds_to);
  }
  n = equal_distributions();
  n.teacher_bias[6] = -infinity;  // impossible for one model only
  const Case masked = n.make();
  EXPECT_GT(certify(masked.problem(), masked.options).loss->lo, 1e-10);
}

// Catches: 0 enclosed by an interval around it.
TEST(Certify, OneEntryGivesExactlyZero) {
  Numbers n = numbers(2, 2, 1, 3, 2);
  n.options.temperature = 0.3;
  const Case c = n.make();
  expect_zero(certify(c.problem(), c.options, Wanted::all()));
}

// Catches: −inf mishandled by interval arithmetic.
TEST(Certify, DisjointSupportsGiveTheEntropyOfBeta) {
  Numbers n = numbers(3, 2, 6, 3, 2);
  for (std::size_t v = 0; v < 6; ++v) (v % 2 ? n.student_bias : n.teacher_bias)[v] = -infinity;
  for (double beta : {0.1, 0.5, 0.9}) {
    n.options.beta = beta;
    const Case c = n.make();
    const CertifiedResult result = certify(c.problem(), c.options);
    const Real100 b = beta, entropy = -b * log(b) - (1 - b) * log1p(Real100(-b));
    expect_encloses(*result.loss, entropy);
    EXPECT_EQ(result.loss->rounds_to, pivot(entropy));
    EXPECT_EQ(result.digits, 40u);
  }
  for (double beta : {0.0, 1.0}) {
    n.options.beta = beta;
    const Case c = n.make();
    const Enclosure loss = *certify(c.problem(), c.options).loss;
    EXPECT_EQ(loss.lo, infinity);
    EXPECT_EQ(loss.rounds_to, infinity);
    EXPECT_EQ(loss.hi_text, "inf");
  }
}

// Catches: an exactly cancelling sum declared to be 0 because its enclosure is small, and a loop without end.
TEST(Certify, SaysInconclusiveWhereIntervalsCannotDecide) {
  Numbers n = numbers(4, 2, 5, 3, 2);
  n.options.temperature = 0.7;
  for (Index v = 0; v < n.vocab; ++v) n.student_weight[static_cast<std::size_t>(v * 3 + 1)] = 1;
  const Case c = n.make();
  // dX of hidden unit 1 is Σ_v dlogits_v · 1 = 0, which intervals only see as small.
  const CertifiedResult result = certify(c.problem(), c.options, Wanted::all());
  EXPECT_EQ(result.digits, 160u);
  EXPECT_TRUE(result.loss->rounds_to);
  for (std::size_t t = 0; t < 2; ++t) {
    const Enclosure& zero = result.student_input_grad[t * 3 + 1];
    EXPECT_FALSE(zero.rounds_to);
    EXPECT_TRUE(zero.contains(0));
    EXPECT_LT(zero.hi - zero.lo, 1e-150);
    EXPECT_TRUE(result.student_input_grad[t * 3].rounds_to);
  }
}

// Two entries whose logits differ by `gap` between the models: D = beta·(1−beta)/2·q_0·q_1·gap² to first
// order.
Case small_gap(double gap) {
  Numbers n{1, 1, 1, 2, {1}, {0, 1}, {1}, {0, 1}, {0, 0}, {0, gap}, {}, {}};
  return n.make();
}

// Catches: giving up too early, and giving in.
TEST(Certify, RaisesThePrecisionAsFarAsItHelps) {
  const double q = 1 / (1 + std::exp(-1.0));
  const struct {
    double gap;
    unsigned digits;
  } cases[] = {{0x1p-30, 40}, {0x1p-90, 80}, {0x1p-300, 160}};
  for (const auto& c : cases) {
    const Case problem = small_gap(c.gap);
    const CertifiedResult result = certify(problem.problem(), problem.options);
    EXPECT_EQ(result.digits, c.digits) << c.gap;
    ASSERT_TRUE(result.loss->rounds_to);
    const double expected = 0.125 * q * (1 - q) * c.gap * c.gap;
    EXPECT_NEAR(*result.loss->rounds_to, expected, (c.gap + 0x1p-49) * expected);
  }
  const Case hopeless = small_gap(0x1p-900);
  const CertifiedResult result = certify(hopeless.problem(), hopeless.options);
  EXPECT_FALSE(result.loss->rounds_to);
  EXPECT_TRUE(result.loss->lo <= 0 && result.loss->hi > 0 && result.loss->hi < 1e-150);
}

// Catches: semantics that differ from linear_jsd's.
TEST(Certify, HasTheSemanticsOfLinearJsd) {
  Numbers n = numbers(5);
  n.labels = {0, -100, 0, 0};
  n.options.valid_vocab = 5;
  n.options.reduction = Reduction::none;
  std::fill_n(n.student_input.begin() + 3, 3, nan);  // of the ignored token
  const Case c = n.make();
  const CertifiedResult result = certify(c.problem(), c.options, Wanted::all());
  EXPECT_FALSE(result.loss);
  EXPECT_EQ(result.counted, 3);
  expect_zero(result.token_loss[1]);
  for (std::size_t h = 0; h < 3; ++h) {
    expect_zero(result.student_input_grad[3 + h]);
    expect_zero(result.student_weight_grad[5 * 3 + h]);
  }
  expect_zero(result.student_bias_grad[5]);

  n.student_input[6] = nan;  // of token 2
  n.options.reduction = Reduction::sum;
  const Case poisoned = n.make();
  Wanted wanted = Wanted::all();
  wanted.weight_grad_rows = {5, 1};
  const CertifiedResult bad = certify(poisoned.problem(), poisoned.options, wanted);
  const auto is_nan = [](const Enclosure& e) {
    return std::isnan(e.lo) && std::isnan(e.hi) && e.lo_text == "nan";
  };
  EXPECT_TRUE(is_nan(*bad.loss));
  EXPECT_TRUE(is_nan(bad.token_loss[2]));
  EXPECT_FALSE(is_nan(bad.token_loss[0]));
  EXPECT_TRUE(bad.token_loss[0].rounds_to);
  for (std::size_t h = 0; h < 3; ++h) {
    EXPECT_TRUE(is_nan(bad.student_input_grad[2 * 3 + h]));
    EXPECT_FALSE(is_nan(bad.student_input_grad[h]));
    expect_zero(bad.student_weight_grad[h]);  // row 5 is past the valid vocabulary
    EXPECT_TRUE(is_nan(bad.student_weight_grad[3 + h]));
  }
  EXPECT_TRUE(is_nan(bad.student_bias_grad[0]));
  expect_zero(bad.student_bias_grad[5]);

  const Case empty = numbers(6, 0).make();
  expect_zero(*certify(empty.problem(), empty.options).loss);
  EXPECT_THROW(certify_token_losses(c.problem(), c.options, {0, 4}), InvalidProblem);
  n.options.beta = -1;
  const Case invalid = n.make();
  EXPECT_THROW(certify(invalid.problem(), invalid.options), InvalidProblem);
  EXPECT_THROW(certify_token_losses(invalid.problem(), invalid.options, {}), InvalidProblem);
}

// Catches: tokens in another order than asked for, and a spot check that is not what certify() says.
TEST(Certify, TokenLossesAgreeWithTheWhole) {
  Numbers n = numbers(7, 5, 30, 8, 9);
  n.labels = {0, 0, -100, 0, 0};
  const Case c = n.make();
  const CertifiedResult whole = certify(c.problem(), c.options);
  const std::vector<Index> tokens{4, 2, 0, 4};
  const std::vector<Enclosure> some = certify_token_losses(c.problem(), c.options, tokens);
  const std::vector<Enclosure> one = certify_token_losses(c.problem(), c.options, {3});
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Enclosure& expected = whole.token_loss[static_cast<std::size_t>(tokens[i])];
    EXPECT_EQ(some[i].lo_text, expected.lo_text);
    EXPECT_EQ(some[i].hi_text, expected.hi_text);
    EXPECT_EQ(some[i].rounds_to, expected.rounds_to);
  }
  EXPECT_EQ(one[0].lo_text, whole.token_loss[3].lo_text);
  expect_zero(some[1]);
}

}  // namespace
}  // namespace fljsd
