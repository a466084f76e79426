// SPDX-License-Identifier: Apache-2.0
// The generator behind the input families. All streams are fixed, so these tests either always pass or always
// fail; each statistical bound is one that a right generator with another seed would break with probability
// below 1e-9.
#include "verify/cases/random.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "verify/cases/generate.h"
#include "verify/cases/portable_math.h"

namespace fljsd {
namespace {

// A mean of n independent numbers of variance v is nearly normal, and a normal variable leaves 6.5 standard
// deviations with probability 8e-11.
double mean_bound(double variance, Index n) {
  return 6.5 * std::sqrt(variance / static_cast<double>(n));
}

// Pearson's statistic for equally likely cells lies between these with probability 1 − 2 e^-t, t = 21.5
// (Laurent and Massart 2000, lemma 1, for the chi-square distribution that it tends to).
void expect_uniform(const std::vector<Index>& counts) {
  Index total = 0;
  for (Index c : counts) total += c;
  const double expected = static_cast<double>(total) / static_cast<double>(counts.size());
  double statistic = 0;
  for (Index c : counts)
    statistic += (static_cast<double>(c) - expected) * (static_cast<double>(c) - expected) / expected;
  const double freedom = static_cast<double>(counts.size() - 1), t = 21.5;
  EXPECT_LE(statistic, freedom + 2 * std::sqrt(freedom * t) + 2 * t);
  EXPECT_GE(statistic, freedom - 2 * std::sqrt(freedom * t));
}

// Catches: another multiplier, shift or increment. The numbers are the published first outputs of SplitMix64
// for the seed 1234567.
TEST(Random, MixesAsSplitMix64) {
  const std::uint64_t known[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                 4593380528125082431u, 16408922859458223821u};
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(splitmix64(1234567, i), known[i]);
}

// Catches: a change of how seed, stream and index become bits, which would silently change every case and
// every recipe that somebody has noted down.
TEST(Random, GivesTheSameNumbersForEver) {
  const Random random(42, 7);
  EXPECT_EQ(random.word(0), 0x020a28ed9e2b2bc4);
  EXPECT_EQ(random.word(Index{1} << 40), 0x13f7c4dfd4134bc6);
  EXPECT_EQ(random.byte(11), 182);
  EXPECT_EQ(random.below(3, 1000), 677);
  EXPECT_EQ(random.uniform(5), 0x1.d5f511f791c98p-1);
  EXPECT_EQ(random.symmetric(5), 0x1.abea23ef23931p-1);
  EXPECT_EQ(random.deviate(9), 0x1.ae86ca7e4757dp+0);
}

// Catches: a byte that repeats or skips within a word.
TEST(Random, BytesAreTheWordsCutUp) {
  const Random random(1, 2);
  for (Index i = 0; i < 64; ++i)
    EXPECT_EQ(random.byte(i), static_cast<int>(random.word(i / 8) >> 8 * (i % 8) & 255));
}

TEST(Random, BytesAreUniform) {
  std::vector<Index> counts(256);
  for (Index i = 0; i < 1 << 20; ++i) ++counts[static_cast<std::size_t>(Random(3, 4).byte(i))];
  expect_uniform(counts);
}

// Catches: a bound that can be reached, modulo bias, and a range cut to 32 bits.
TEST(Random, BelowIsUniformAndBelow) {
  const Random random(5, 6);
  for (Index count : {Index{2}, Index{10}, Index{1000}}) {
    std::vector<Index> counts(static_cast<std::size_t>(count));
    for (Index i = 0; i < 1 << 18; ++i) ++counts.at(static_cast<std::size_t>(random.below(i, count)));
    expect_uniform(counts);
  }
  std::vector<Index> sixteenths(16);
  for (Index i = 0; i < 1 << 14; ++i) {
    EXPECT_EQ(random.below(i, 1), 0);
    ++sixteenths.at(static_cast<std::size_t>(random.below(i, Index{1} << 62) >> 58));
  }
  expect_uniform(sixteenths);
}

// Catches: an interval that includes its end, or is off by one unit. Moments: E u = 1/2, var u = 1/12;
// E s = 0, var s = 1/3, var s² = 1/5 − 1/9.
TEST(Random, UniformNumbersFillTheirIntervals) {
  const Random random(7, 8);
  const Index n = 1 << 20;
  double sum = 0, symmetric_sum = 0, square_sum = 0;
  for (Index i = 0; i < n; ++i) {
    const double u = random.uniform(i), s = random.symmetric(i);
    ASSERT_TRUE(u >= 0 && u < 1 && u == std::floor(u * 0x1p53) * 0x1p-53);
    ASSERT_TRUE(std::abs(s) < 1 && std::fmod(std::abs(s) * 0x1p53, 2) == 1) << s;
    sum += u;
    symmetric_sum += s;
    square_sum += s * s;
  }
  EXPECT_LE(std::abs(sum / n - 0.5), mean_bound(1.0 / 12, n));
  EXPECT_LE(std::abs(symmetric_sum / n), mean_bound(1.0 / 3, n));
  EXPECT_LE(std::abs(square_sum / n - 1.0 / 3), mean_bound(1.0 / 5 - 1.0 / 9, n));
}

// The distribution function of the sum of eight uniform numbers on [0, 1] (Irwin, Hall).
double irwin_hall_cdf(double x) {
  double sum = 0, binomial = 1, factorial = 1;
  for (int k = 0; k < 8; ++k) {
    if (x > k) sum += (k % 2 ? -1 : 1) * binomial * std::pow(x - k, 8);
    binomial = binomial * (8 - k) / (k + 1);
    factorial *= k + 1;
  }
  return sum / factorial;
}

// Against the exact distribution: with probability 1 − 2 e^(−2 n d²) the empirical distribution function
// stays within d of it (Dvoretzky, Kiefer, Wolfowitz; Massart's constant), here 1 − 1e-9. Moments as the
// header states them. Catches: fields that overlap, a wrong mean or scale, correlated halves.
TEST(Random, DeviatesHaveTheStatedDistribution) {
  EXPECT_NEAR(Random::deviate_scale, 1 / (2 * std::sqrt(8 * (0x1p32 - 1) / 12)), 1e-21);
  const Index n = 1 << 20;
  const Random random(9, 10);
  std::vector<double> values;
  for (Index i = 0; i < n; ++i) values.push_back(random.deviate(i));
  double mean = 0, square = 0, cube = 0, fourth = 0;
  for (double x : values) {
    ASSERT_LE(std::abs(x), Random::max_deviate);
    mean += x / n;
    square += x * x / n;
    cube += x * x * x / n;
    fourth += x * x * x * x / n;
  }
  // Variances of the powers are at most those of a normal variable: 1, 2, 15, 96.
  EXPECT_LE(std::abs(mean), mean_bound(1, n));
  EXPECT_LE(std::abs(square - 1), mean_bound(2, n));
  EXPECT_LE(std::abs(cube), mean_bound(15, n));
  EXPECT_LE(std::abs(fourth - 2.85), mean_bound(96, n));

  std::sort(values.begin(), values.end());
  double worst = 0;
  for (Index i = 0; i < n; ++i) {
    const double cdf = irwin_hall_cdf(4 + values[static_cast<std::size_t>(i)] * std::sqrt(8.0 / 12));
    worst = std::max(
        {worst, std::abs(cdf - static_cast<double>(i) / n), std::abs(cdf - static_cast<double>(i + 1) / n)});
  }
  // The numbers are discrete, with steps of at most 1.9e-5 · 0.4 in the distribution function.
  EXPECT_LE(worst, std::sqrt(std::log(2e9) / (2.0 * n)) + 1e-5);
}

// Catches: streams, seeds or neighbours (also in steps of a row length) that are correlated. A mean of n
// products of independent numbers of variance 1 has variance 1/n.
TEST(Random, NumbersDoNotDependOnEachOther) {
  const Index n = 1 << 18;
  const Random random(11, 12);
  const auto expect_uncorrelated = [&](const Random& other, Index lag) {
    double sum = 0;
    for (Index i = 0; i < n; ++i) sum += random.deviate(i) * other.deviate(i + lag);
    EXPECT_LE(std::abs(sum / n), mean_bound(1, n)) << lag;
  };
  for (Index lag : {1, 2, 3, 16, 64, 4096}) expect_uncorrelated(random, lag);
  for (Index lag : {0, 1}) {
    expect_uncorrelated(Random(11, 13), lag);
    expect_uncorrelated(Random(12, 12), lag);
    expect_uncorrelated(Random(12, 11), lag);
  }
}

// Catches: a permutation that hits an entry twice, leaves the range, or whose inverse is not one.
TEST(Permutation, IsOneToOne) {
  std::vector<Index> sizes{1000, 1024, 1025, 128256};
  for (Index size = 1; size <= 300; ++size) sizes.push_back(size);
  for (Index size : sizes) {
    const Permutation permutation(Random(13, static_cast<std::uint64_t>(size)), size);
    std::vector<bool> hit(static_cast<std::size_t>(size));
    for (Index i = 0; i < size; ++i) {
      const Index image = permutation(i);
      ASSERT_TRUE(image >= 0 && image < size);
      ASSERT_FALSE(hit[static_cast<std::size_t>(image)]);
      hit[static_cast<std::size_t>(image)] = true;
      ASSERT_EQ(permutation.inverse(image), i);
    }
  }
}

// Catches: a "permutation" that keeps order or place. The first entry's image is uniform over seeds.
TEST(Permutation, DependsOnItsSeed) {
  std::vector<Index> counts(50);
  for (std::uint64_t seed = 0; seed < 20000; ++seed)
    ++counts[static_cast<std::size_t>(Permutation(Random(seed, 0), 50)(0))];
  expect_uniform(counts);
}

// Catches: a wrong series or reduction. libm's own error is below 2^-52.
TEST(PortableMath, AgreesWithLibm) {
  const Random random(14, 15);
  for (Index i = 0; i < 200000; ++i) {
    const double x = 700 * random.symmetric(i);
    EXPECT_LE(std::abs(portable_exp(x) / std::exp(x) - 1), 0x1p-50) << x;
    const double y = std::exp(x);
    EXPECT_LE(std::abs(portable_log(y) - std::log(y)), 0x1p-50 * std::abs(std::log(y))) << y;
    const double near_one = 1 + std::ldexp(random.symmetric(i), -static_cast<int>(i % 52));
    EXPECT_LE(std::abs(portable_log(near_one) - std::log(near_one)), 0x1p-50 * std::abs(std::log(near_one)));
  }
  EXPECT_EQ(portable_exp(0), 1);
  EXPECT_EQ(portable_log(1), 0);
}

// Known bits, which must not depend on the processor or the compiler's options.
TEST(PortableMath, GivesTheSameBitsForEver) {
  EXPECT_EQ(portable_exp(1), 0x1.5bf0a8b14576ap+1);
  EXPECT_EQ(portable_exp(-123.456), 0x1.da9fb9e4ee72p-179);
  EXPECT_EQ(portable_log(10), 0x1.26bb1bbb55516p+1);
  EXPECT_EQ(portable_log(0x1.23456p-70), -0x1.83213b17c112fp+5);
}

// Catches: pieces of a tensor that are skipped or written twice, and rows that depend on which others are
// asked for. Sizes around a piece of 2^16 elements.
TEST(Generate, WritesEachElementOnce) {
  for (const auto& [rows, cols] :
       {std::pair<Index, Index>{0, 3}, {1, 1}, {70000, 1}, {3, 65537}, {129, 1000}}) {
    const Index width = cols;
    const Tensor whole = generate_matrix(DType::f64, rows, cols, [width](Index r, double* out) {
      for (Index j = 0; j < width; ++j) out[j] = static_cast<double>(r * width + j);
    });
    ASSERT_EQ(whole.shape, (std::vector<Index>{rows, cols}));
    for (Index i = 0; i < rows * cols; ++i)
      ASSERT_EQ(load(DType::f64, whole.data.get(), i), static_cast<double>(i));
  }
  const Tensor some = generate_rows(DType::f32, {5, 2, 5}, 2, [](Index r, double* out) {
    out[0] = static_cast<double>(r);
    out[1] = -static_cast<double>(r);
  });
  const double expected[] = {5, -5, 2, -2, 5, -5};
  for (Index i = 0; i < 6; ++i) EXPECT_EQ(load(DType::f32, some.data.get(), i), expected[i]);
  EXPECT_EQ(generate_vector(DType::bf16, 3, [](Index i) { return static_cast<double>(i); }).vector()(2), 2);
}

}  // namespace
}  // namespace fljsd
