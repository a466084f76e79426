// SPDX-License-Identifier: Apache-2.0
// Bounds of sums and dot products (error_bound/roundoff.h, sum_error()) against float32 sums that were chosen
// to break them, in several orders; exact sums by exact_dot.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "reference/error_bound/logit_scale.h"
#include "reference/error_bound/roundoff.h"
#include "reference/error_bound/sum_error.h"
#include "reference/exact_dot.h"
#include "reference/largest.h"

namespace fljsd {
namespace {

constexpr double u = 0x1p-24, infinity = std::numeric_limits<double>::infinity();
using Floats = std::vector<float>;

enum class Order { ascending, fused, pairwise, lanes, chunks };
constexpr Order orders[] = {Order::ascending, Order::fused, Order::pairwise, Order::lanes, Order::chunks};

float pairwise(const Floats& t, std::size_t first, std::size_t count) {
  if (count == 1) return t[first];
  const std::size_t half = count / 2;
  return pairwise(t, first, half) + pairwise(t, first + half, count - half);
}

float dot(const Floats& a, const Floats& b, Order order) {
  Floats terms(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) terms[i] = a[i] * b[i];
  float sum = 0;
  switch (order) {
    case Order::ascending:
      for (float t : terms) sum += t;
      return sum;
    case Order::fused:
      for (std::size_t i = 0; i < a.size(); ++i) sum = std::fma(a[i], b[i], sum);
      return sum;
    case Order::pairwise: return pairwise(terms, 0, terms.size());
    case Order::lanes: {
      float lanes[16] = {};
      for (std::size_t i = 0; i < terms.size(); ++i) lanes[i % 16] += terms[i];
      for (float lane : lanes) sum += lane;
      return sum;
    }
    case Order::chunks:
      for (std::size_t i = 0; i < terms.size(); i += 7) {
        float part = 0;
        for (std::size_t k = i; k < std::min(i + 7, terms.size()); ++k) part += terms[k];
        sum += part;
      }
      return sum;
  }
  return sum;
}

double error_of(const Floats& a, const Floats& b, Order order) {
  const auto size = static_cast<Index>(a.size());
  const ExactValue exact = exact_dot(VectorView{DType::f32, a.data(), size}, {DType::f32, b.data(), size});
  return std::abs((ExactValue(dot(a, b, order)) - exact).to<double>());
}

DotScale scale_of(const Floats& a, const Floats& b) {
  DotScale scale;
  scale.terms = static_cast<double>(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double t = static_cast<double>(a[i]) * b[i];
    scale.total += t;
    scale.absolute += std::abs(t);
    scale.square += t * t;
  }
  return scale;
}

constexpr DotArithmetic fp32{.unit = u, .smallest = 0x1p-149, .largest = 0x1.fffffep127};

// Fault: an order of summation, or a fused multiply-add, that has more roundings on a path than are counted.
// Terms of falling size, just above half a unit of the sum, cancelling, equal, or random.
RC_GTEST_PROP(Dot, WorstCaseHoldsInEveryOrder, (std::uint64_t seed)) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < 100; ++i) {
    const std::size_t n = 1 + random() % 60;
    const auto kind = random() % 5;
    Floats a(n), b(n);
    for (std::size_t k = 0; k < n; ++k) {
      const float r = static_cast<float>(random() >> 40) * 0x1p-24f;
      b[k] = 1 + r * 0x1p-12f;
      if (kind == 0) a[k] = k == 0 ? 1 : 0x1.000002p-24f;
      if (kind == 1) a[k] = std::ldexp(1 + r, -static_cast<int>(k));
      if (kind == 2) a[k] = (k % 2 ? -1.0f : 1.0f) * (1 + r), b[k] = 1;
      if (kind == 3) a[k] = 0x1.fffffep0f, b[k] = 0x1.fffffep0f;
      if (kind == 4) a[k] = std::ldexp(2 * r - 1, static_cast<int>(random() % 40) - 20);
    }
    const double bound = dot_error(scale_of(a, b), fp32);
    for (Order order : orders) RC_ASSERT(error_of(a, b, order) <= bound * (1 + 0x1p-40));
  }
}

// Fault: a bound that no sum comes near. 1 and then n − 1 terms of just over 2^-24: each addition rounds up
// by almost u.
TEST(Dot, WorstCaseIsApproached) {
  const std::size_t n = 1000;
  Floats a(n, 0x1.000002p-24f), b(n, 1);
  a[0] = 1;
  const double ratio = error_of(a, b, Order::ascending) / dot_error(scale_of(a, b), fp32);
  EXPECT_GE(ratio, 0.95);
  EXPECT_LE(ratio, 1);
}

// Fault: an overflow of a partial sum that is only seen when roundings are taken into account. Three
// additions of 3/4 of a unit round up by a quarter each, so the last one, a tie, is infinite; the exact sum
// is a quarter of a unit below the largest float.
TEST(Dot, RoundingMayOverflow) {
  const Floats a = {0x1.fffff8p127f, 0x1.8p103f, 0x1.8p103f, 0x1.8p103f, 0x1p103f}, ones(5, 1);
  EXPECT_EQ(dot(a, ones, Order::ascending), infinity);
  EXPECT_LT(scale_of(a, ones).absolute, fp32.largest);
  EXPECT_EQ(dot_error(scale_of(a, ones), fp32), infinity);
}

// Fault: products flushed to zero that cost nothing.
TEST(Dot, UnderflowCounts) {
  const std::size_t n = 64;
  const Floats a(n, 0x1p-75f), b(n, 0x1p-76f);  // each product is 2^-151: a quarter of the smallest number
  EXPECT_EQ(dot(a, b, Order::ascending), 0);
  const double error = error_of(a, b, Order::ascending);
  EXPECT_GT(error, 0);
  EXPECT_LE(error, dot_error(scale_of(a, b), fp32));
  const Floats normal(n, 0x1.8p-75f), other(n, 0x1.8p-75f);  // 1.125·2^-149 each: rounded, not flushed
  EXPECT_LE(error_of(normal, other, Order::fused), dot_error(scale_of(normal, other), fp32));
}

// Fault: a statistical bound that random sums break, or whose probability is misstated. With lambda = 4 it
// fails with probability 2·e^-8 = 6.7e-4 at most; of 3000 sums with random signs, 0 to 10 may (the mean is at
// most 2, and more than 10 has probability 1e-5 even if each failed with that probability).
TEST(Dot, StatisticalBoundFailsAsRarelyAsItSays) {
  std::mt19937_64 random(11);
  constexpr double lambda = 4;
  int failures = 0;
  double largest = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::size_t n = 300;
    Floats a(n), b(n);
    double partial = 0, squares = 0;
    for (std::size_t k = 0; k < n; ++k) {
      a[k] = static_cast<float>(random() >> 40) * 0x1p-23f - 1;
      b[k] = static_cast<float>(random() >> 40) * 0x1p-23f - (i % 2 ? 1.0f : 0.0f);
      partial += static_cast<double>(a[k]) * b[k];
      squares += partial * partial;
    }
    DotScale scale = scale_of(a, b);
    scale.partial_square = squares / static_cast<double>(n);
    DotArithmetic arithmetic = fp32;
    arithmetic.lambda = lambda;
    const double ratio = error_of(a, b, Order::ascending) / dot_error(scale, arithmetic);
    if (!(ratio <= 1)) ++failures;
    largest = std::max(largest, ratio);
  }
  EXPECT_LE(failures, 10);
  EXPECT_GE(largest, 0.2);  // and it is not generous: the largest of 3000 deviations is above 3 sigma of 4
}

TEST(Statistics, LambdaAndProbabilityAreInverse) {
  for (double probability : {1e-3, 1e-9, 1e-15})
    for (double sums : {1.0, 1e6, 1e12})
      EXPECT_NEAR(failure_probability(lambda_for(probability, sums), sums), probability, 1e-12 * probability);
}

// Fault: a sum over the vocabulary that loses more than sum_error() says, worst case and statistical, with a
// few dominating terms and many that vanish beside them, in any of the orders.
RC_GTEST_PROP(Sum, VocabularySumsAreWithinTheirBound, (std::uint64_t seed)) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < 4; ++i) {
    const std::size_t n = 1 + random() % 9000;
    const int range = static_cast<int>(random() % 60);
    Floats terms(n), ones(n, 1);
    for (float& t : terms)
      t = std::ldexp(1 + static_cast<float>(random() >> 40) * 0x1p-24f,
                     range == 0 ? 0 : -static_cast<int>(random() % static_cast<unsigned>(range)));
    const std::vector<double> magnitudes(terms.begin(), terms.end());
    const double worst = sum_error(magnitudes, u, 0), likely = sum_error(magnitudes, u, 7);
    RC_ASSERT(likely <= worst);
    for (Order order : orders) {
      if (order == Order::fused) continue;
      const double error = error_of(terms, ones, order);
      RC_ASSERT(error <= worst);
      // 400 sums a run, 5 orders, 2·e^-24.5 each: fails once in 10^7 runs if roundings were random. Terms
      // below u·Σ in one long accumulator are the exception that the bound allows for: they count in full.
      RC_ASSERT(error <= likely);
    }
  }
}

// 1 and then `count` terms of (k + fraction)·2^-23: float32 rounds each addition to the same side, by the
// same.
Floats aligned_terms(std::size_t count, float k, float fraction) {
  Floats terms(count + 1, (k + fraction) * 0x1p-23f);
  terms[0] = 1;
  return terms;
}

// Fault: roundings of equal increments that are taken to be random. A softmax with one peak sums them: a row
// of 611 equal logits 15 nats below the largest loses 466u, beyond what mean independence allows of 612
// roundings. Here each addition loses half a unit, all to one side, so the bound is approached; nearly equal
// terms do the same.
TEST(Sum, EqualTermsAreRoundedAlike) {
  std::mt19937_64 random(5);
  for (const std::size_t count : {200, 611, 2000, 4000}) {
    for (const float k : {1.0f, 2.0f, 7.0f}) {
      for (const bool vary : {false, true}) {
        Floats terms = aligned_terms(count, k, 0.5625f);
        for (std::size_t i = 1; i <= count && vary; ++i)
          terms[i] += static_cast<float>(random() % 1000) * 1e-4f * 0x1p-23f;
        const std::vector<double> magnitudes(terms.begin(), terms.end());
        const Floats ones(terms.size(), 1);
        const double likely = sum_error(magnitudes, u, 8);
        for (Order order : orders) EXPECT_LE(error_of(terms, ones, order), likely) << count << " " << k;
        EXPECT_GE(error_of(terms, ones, Order::ascending), 0.6 * likely) << count << " " << k;
      }
    }
  }
}

// Fault: a bound for equal terms that all sums have to pay for. Different terms of no more than twice each
// other's size are many units apart, and n of them keep the bound of n random roundings.
TEST(Sum, DifferentTermsStillAreRandom) {
  std::mt19937_64 random(6);
  std::vector<double> terms(4000);
  for (double& t : terms) t = 1 + static_cast<double>(random() >> 11) * 0x1p-53;
  const double total = 6000, lambda = 8;
  EXPECT_LE(sum_error(terms, u, lambda), 1.1 * lambda * u * total * std::sqrt(2.0 * 4000));
}

// Fault: a product of norms below a sum of products, after balancing columns of any size, zeros among them.
// Columns differ by up to 2^240, so products and their sums stay finite.
RC_GTEST_PROP(Norms, BalancedProductsBoundDotProducts, (std::uint64_t seed)) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<Index>(random() % n); };
  const Index tokens = 1 + below(4), vocab = 1 + below(5), hidden = 1 + below(9);
  std::vector<int> exponent(static_cast<std::size_t>(hidden));
  for (int& e : exponent) e = static_cast<int>(below(241)) - 120;
  const auto matrix = [&](Index rows, int sign) {
    std::vector<double> values;
    for (Index i = 0; i < rows * hidden; ++i)
      values.push_back(below(5) == 0 ? 0
                                     : std::ldexp(static_cast<double>(below(1 << 20)) - (1 << 19),
                                                  sign * exponent[static_cast<std::size_t>(i % hidden)]));
    return values;
  };
  const std::vector<double> a = matrix(tokens, 1), w = matrix(vocab, -1);
  const MatrixView input{DType::f64, a.data(), tokens, hidden, hidden},
      weight{DType::f64, w.data(), vocab, hidden, hidden};
  std::vector<Index> all;
  for (Index t = 0; t < tokens; ++t) all.push_back(t);
  const BalancedNorms norms = balanced_norms(input, all, weight, vocab);
  for (Index t = 0; t < tokens; ++t) {
    for (Index v = 0; v < vocab; ++v) {
      double sum = 0, square = 0;
      for (Index h = 0; h < hidden; ++h) {
        const double product = std::abs(input(t, h) * weight(v, h));
        sum += product;
        square += product * product;
      }
      const auto i = static_cast<std::size_t>(t), k = static_cast<std::size_t>(v);
      const double fourth = norms.input.four[i] * norms.weight.four[k];
      constexpr double rounding = 1 - 0x1p-48;  // of the sums here: ten roundings
      RC_ASSERT(norms.input.two[i] * norms.weight.two[k] >= sum * rounding);
      RC_ASSERT(fourth * fourth >= square * rounding);
    }
  }
}

// Fault: a maximum that forgets NaN at the next number, so that the norm of NaN and 0 is 0.
TEST(Norms, NanIsNotForgotten) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(larger_or_nan(nan, 1)));
  EXPECT_TRUE(std::isnan(larger_or_nan(1, nan)));
  EXPECT_EQ(larger_or_nan(1, 2), 2);
  EXPECT_EQ(larger_or_nan(2, 1), 2);
  for (const double other : {0.0, 3.0, std::numeric_limits<double>::infinity()}) {
    for (std::size_t place = 0; place < 3; ++place) {
      std::vector<double> row(3, other);
      row[place] = nan;
      EXPECT_TRUE(std::isnan(norms(row).two)) << place << ' ' << other;
      EXPECT_TRUE(std::isnan(norms(row).four)) << place << ' ' << other;
      // As the columns of a matrix that are balanced before their norms are taken.
      const MatrixView columns{DType::f64, row.data(), 3, 1, 1};
      const std::vector<Index> all = {0, 1, 2};
      const BalancedNorms balanced = balanced_norms(columns, all, columns, 3);
      EXPECT_FALSE(std::isfinite(balanced.input.two[place])) << place << ' ' << other;
    }
  }
}

}  // namespace
}  // namespace fljsd
