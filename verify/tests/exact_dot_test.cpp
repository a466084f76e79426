// SPDX-License-Identifier: Apache-2.0
// exact_dot against rational arithmetic, which shares no code with it.
#include "reference/exact_dot.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <boost/multiprecision/cpp_int.hpp>

namespace fljsd {
namespace {

using Rational = boost::multiprecision::cpp_rational;
using BigInteger = boost::multiprecision::cpp_int;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr DType dtypes[] = {DType::bf16, DType::f16, DType::f32, DType::f64};

Rational power_of_two(int exponent) {
  const BigInteger power = BigInteger(1) << std::abs(exponent);
  return exponent < 0 ? Rational(1, power) : Rational(power);
}

Rational rational(double x) {
  int exponent = 0;
  const auto significand = static_cast<std::int64_t>(std::ldexp(std::frexp(x, &exponent), 53));
  return Rational(significand) * power_of_two(exponent - 53);
}

Rational rational(mpfr_srcptr x) {
  if (mpfr_zero_p(x)) return 0;
  ExactValue::Integer significand;
  const auto exponent = mpfr_get_z_2exp(significand.backend().data(), x);
  return Rational(BigInteger(significand.str())) * power_of_two(static_cast<int>(exponent));
}

// The dyadic number as an ExactValue, made from its digits.
ExactValue exact(const Rational& x) {
  return ExactValue(ExactValue::Integer(numerator(x).str()),
                    denominator(x) == 0 ? 0 : -static_cast<Index>(msb(denominator(x))));
}

// A packed vector that owns its bytes, one byte off any alignment.
struct Vector {
  DType dtype;
  std::vector<std::byte> bytes;
  Index size;

  Vector(DType format, Index count)
      : dtype(format), bytes(static_cast<std::size_t>(count) * size_of(format) + 1), size(count) {}
  Vector(DType format, const std::vector<double>& values)
      : Vector(format, static_cast<Index>(values.size())) {
    for (Index i = 0; i < size; ++i) set(i, values[static_cast<std::size_t>(i)]);
  }
  void* data() { return bytes.data() + 1; }
  VectorView view() const { return {dtype, bytes.data() + 1, size}; }
  double operator[](Index i) const { return view()(i); }
  void set(Index i, double x) { store(dtype, data(), i, x); }
};

// Σ a_i·b_i over the common denominator 2^2260 (the least exponent here is 2·(−1073 − 53)): reducing a
// fraction after each addition would take most of the time.
Rational rational_dot(const Vector& a, const Vector& b) {
  constexpr int denominator_bits = 2260;
  BigInteger sum = 0;
  for (Index i = 0; i < a.size; ++i) {
    int a_exponent = 0, b_exponent = 0;
    const auto a_significand = static_cast<std::int64_t>(std::ldexp(std::frexp(a[i], &a_exponent), 53));
    const auto b_significand = static_cast<std::int64_t>(std::ldexp(std::frexp(b[i], &b_exponent), 53));
    if (a_significand == 0 || b_significand == 0) continue;
    sum += (BigInteger(a_significand) * b_significand) << (a_exponent + b_exponent - 106 + denominator_bits);
  }
  return Rational(sum, BigInteger(1) << denominator_bits);
}

enum class Kind { any_bits, extremes, one_binade, cancelling };

// Finite values of a format, the awkward ones often.
double awkward(DType dtype, Kind kind, std::mt19937_64& random) {
  const Format format = format_of(dtype);
  const int fraction_bits = format.precision - 1;
  const double smallest = std::ldexp(1.0, format.min_exponent - fraction_bits);
  const double largest = std::ldexp(2 - std::ldexp(1.0, -fraction_bits), format.max_exponent);
  const double sign = random() % 2 ? 1 : -1;
  switch (kind) {
    case Kind::extremes: {
      const double values[] = {0,
                               smallest,
                               std::ldexp(1.0, format.min_exponent) - smallest,  // largest subnormal
                               std::ldexp(1.0, format.min_exponent),
                               1,
                               1 + std::ldexp(1.0, -fraction_bits),
                               std::ldexp(1.0, format.max_exponent),
                               largest};
      return sign * values[random() % std::size(values)];
    }
    case Kind::one_binade:
      return sign * round_to(dtype, 1 + std::ldexp(static_cast<double>(random() >> 11), -53));
    default: {  // a random pattern of bits, by way of a random significand and exponent
      const int span = format.max_exponent - format.min_exponent + format.precision;
      const int exponent =
          format.min_exponent - fraction_bits + static_cast<int>(random() % static_cast<unsigned>(span));
      const double x = round_to(dtype, std::ldexp(static_cast<double>(random() >> 11), exponent - 52));
      return sign * (std::isfinite(x) ? x : largest);
    }
  }
}

Vector awkward_vector(DType dtype, Index size, Kind kind, std::mt19937_64& random) {
  Vector v(dtype, size);
  for (Index i = 0; i < size; ++i) v.set(i, awkward(dtype, kind, random));
  return v;
}

// Whether `rounded` is x rounded to nearest, ties to even, decided by comparing rational numbers only.
bool is_nearest(const Rational& x, double rounded) {
  const double largest = std::numeric_limits<double>::max();
  const Rational beyond = power_of_two(1024);  // where the next double would be
  const auto value = [&](double y) {
    return std::isinf(y) ? Rational(y > 0 ? beyond : -beyond) : rational(y);
  };
  const Rational error = abs(Rational(x - value(rounded)));
  if (std::isinf(rounded)) return abs(x) >= (beyond + rational(largest)) / 2;
  for (double neighbour : {std::nextafter(rounded, -infinity), std::nextafter(rounded, infinity)}) {
    const Rational other = abs(Rational(x - value(neighbour)));
    if (other < error) return false;
    if (other == error && std::bit_cast<std::uint64_t>(rounded) % 2 != 0) return false;
  }
  return true;
}

void expect_conversions(const ExactValue& value, const Rational& expected) {
  EXPECT_TRUE(is_nearest(expected, value.to<double>())) << value.to<double>();
  const auto interval = value.to<Interval<40>>();
  const Rational lo = rational(interval.backend().left_data()),
                 hi = rational(interval.backend().right_data());
  EXPECT_TRUE(lo <= expected && expected <= hi);
  // At most one unit in the last place wide, at no less than 40 digits; and a point when the number fits.
  EXPECT_TRUE((hi - lo) * power_of_two(132) <= abs(expected));
  const Rational digits100 = rational(value.to<Real100>().backend().data());
  EXPECT_TRUE(abs(Rational(digits100 - expected)) * power_of_two(332) <= abs(expected));
}

// Catches: a wrong significand, exponent or sign of any format; subnormals decoded as normal; a bin index
// that is out of range or shared; a carry that is lost; a conversion that rounds twice or the wrong way.
RC_GTEST_PROP(ExactDot, EqualsRationalArithmetic, ()) {
  const DType a_type = *rc::gen::elementOf(std::vector<DType>(std::begin(dtypes), std::end(dtypes)));
  const DType b_type = *rc::gen::elementOf(std::vector<DType>(std::begin(dtypes), std::end(dtypes)));
  const Index size = *rc::gen::elementOf(std::vector<Index>{0, 1, 2, 3, 4, 5, 7, 8, 31, 64, 65});
  const Kind kind = *rc::gen::elementOf(std::vector<Kind>{Kind::any_bits, Kind::extremes, Kind::one_binade});
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  const Vector a = awkward_vector(a_type, size, kind, random), b = awkward_vector(b_type, size, kind, random);
  const Rational expected = rational_dot(a, b);
  const ExactValue actual = exact_dot(a.view(), b.view());
  RC_ASSERT(actual == exact(expected));
  expect_conversions(actual, expected);
  RC_ASSERT(!testing::Test::HasFailure());
}

// Every product comes back with the other sign except one of the smallest there is: all bits above it cancel.
// Catches: anything inexact, which the large terms would swamp in the test above.
RC_GTEST_PROP(ExactDot, SurvivesCancellation, ()) {
  const DType a_type = *rc::gen::elementOf(std::vector<DType>(std::begin(dtypes), std::end(dtypes)));
  const DType b_type = *rc::gen::elementOf(std::vector<DType>(std::begin(dtypes), std::end(dtypes)));
  const Index half = *rc::gen::elementOf(std::vector<Index>{1, 2, 5, 32});
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  Vector a(a_type, 2 * half + 1), b(b_type, 2 * half + 1);
  for (Index i = 0; i < half; ++i) {
    a.set(i, awkward(a_type, Kind::any_bits, random));
    b.set(i, awkward(b_type, Kind::any_bits, random));
    a.set(2 * half - i, -a[i]);
    b.set(2 * half - i, b[i]);
  }
  const Format f = format_of(a_type), g = format_of(b_type);
  const int a_exponent = f.min_exponent - (f.precision - 1), b_exponent = g.min_exponent - (g.precision - 1);
  a.set(half, std::ldexp(1.0, a_exponent));
  b.set(half, -std::ldexp(1.0, b_exponent));
  RC_ASSERT(exact_dot(a.view(), b.view()) == ExactValue(ExactValue::Integer(-1), a_exponent + b_exponent));
}

// The largest significands in one bin, around the number of them that a bin can take before it must be
// emptied (2^14 for f32, 2^20 for f64). Catches: a bin that overflows, and a remainder dropped at the
// boundary.
TEST(ExactDot, EmptiesBinsBeforeTheyOverflow) {
  struct {
    DType a, b;
    Index size;
  } const cases[] = {{DType::f32, DType::f32, (1 << 14) - 1}, {DType::f32, DType::f32, 1 << 14},
                     {DType::f32, DType::f32, (1 << 14) + 1}, {DType::f32, DType::f32, 5 * (1 << 14) + 3},
                     {DType::f64, DType::f64, (1 << 20) + 1}, {DType::f64, DType::f64, (1 << 21) + 5},
                     {DType::f64, DType::f32, (1 << 20) + 1}, {DType::bf16, DType::bf16, (1 << 17) + 1},
                     {DType::f16, DType::f32, (1 << 17) + 1}};
  for (const auto& c : cases) {
    const double a = 2 - 2 * unit_roundoff(c.a), b = 2 - 2 * unit_roundoff(c.b);
    for (double sign : {1.0, -1.0}) {
      const Vector x(c.a, std::vector<double>(static_cast<std::size_t>(c.size), a));
      const Vector y(c.b, std::vector<double>(static_cast<std::size_t>(c.size), sign * b));
      EXPECT_TRUE(exact_dot(x.view(), y.view()) == exact(rational(a) * rational(sign * b) * c.size))
          << name(c.a) << " " << name(c.b) << " " << c.size;
    }
  }
}

// Catches: special values treated as numbers, a NaN swallowed by a zero, the wrong sign of infinity.
TEST(ExactDot, FollowsIeeeForSpecialValues) {
  struct {
    std::vector<double> a, b;
    double expected;
  } const cases[] = {
      {{1, infinity}, {1, 2}, infinity},
      {{1, infinity}, {1, -2}, -infinity},
      {{1, infinity}, {1, 0}, nan},
      {{infinity, infinity}, {1, -1}, nan},
      {{infinity, -infinity}, {1, -1}, infinity},
      {{nan, 1}, {0, 1}, nan},
      {{-infinity, 1e4}, {3, 1e4}, -infinity},
      {{infinity}, {infinity}, infinity},
  };
  for (DType dtype : dtypes) {
    for (const auto& c : cases) {
      for (bool swapped : {false, true}) {
        const Vector a(dtype, swapped ? c.b : c.a), b(dtype, swapped ? c.a : c.b);
        const double actual = exact_dot(a.view(), b.view()).to<double>();
        EXPECT_TRUE(std::isnan(c.expected) ? std::isnan(actual) : actual == c.expected) << actual;
      }
    }
  }
}

// Catches: an all-zero vector whose exponent range is empty, and a zero that widens or narrows it.
TEST(ExactDot, HandlesZeros) {
  for (DType dtype : dtypes) {
    const Vector zeros(dtype, {0, -0.0, 0}), mixed(dtype, {0, 4, 0}), ones(dtype, {1, 1, 1});
    EXPECT_TRUE(exact_dot(zeros.view(), zeros.view()) == ExactValue(0));
    EXPECT_TRUE(exact_dot(zeros.view(), ones.view()) == ExactValue(0));
    EXPECT_TRUE(exact_dot(mixed.view(), ones.view()) == ExactValue(4));
    EXPECT_FALSE(std::signbit(exact_dot(zeros.view(), zeros.view()).to<double>()));
  }
}

// Catches: a reused vector that keeps elements, exponents or the finiteness of what it held before.
TEST(ExactDot, VectorsCanBeReused) {
  const Vector first(DType::f64, {1e300, nan, 3}), second(DType::bf16, {1, 2}),
      third(DType::f64, {5, 1e-300});
  ExactVector v(first.view());
  const ExactVector ones(Vector(DType::f32, {1, 1}).view());
  v.assign(second.dtype, second.bytes.data() + 1, 0, 2);
  EXPECT_TRUE(exact_dot(v, ones) == ExactValue(3));
  v.assign(third.dtype, third.bytes.data() + 1, 0, 2);
  EXPECT_TRUE(exact_dot(v, ones) == ExactValue(5) + ExactValue(1e-300));
  v.assign(second.dtype, second.bytes.data() + 1, 1, 1);
  EXPECT_EQ(v.size(), 1);
  EXPECT_THROW(exact_dot(v, ones), std::invalid_argument);
}

// Catches: sums that are rounded, and equality that is decided on rounded values.
RC_GTEST_PROP(ExactValue, AddsAndComparesExactly, ()) {
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  const Kind kind = *rc::gen::elementOf(std::vector<Kind>{Kind::any_bits, Kind::extremes, Kind::one_binade});
  const double a = awkward(DType::f64, kind, random), b = awkward(DType::f64, kind, random);
  const ExactValue sum = ExactValue(a) + ExactValue(b), difference = ExactValue(a) - ExactValue(b);
  RC_ASSERT(sum == exact(rational(a) + rational(b)));
  RC_ASSERT(difference == exact(rational(a) - rational(b)));
  RC_ASSERT(sum - ExactValue(b) == ExactValue(a));
  RC_ASSERT((ExactValue(a) == ExactValue(b)) == (a == b));
  RC_ASSERT(sum.to<double>() == a + b);  // both are the sum, rounded once
}

TEST(ExactValue, SpecialValuesAddAsIeee) {
  EXPECT_EQ((ExactValue(infinity) + ExactValue(1)).to<double>(), infinity);
  EXPECT_EQ((ExactValue(1) - ExactValue(infinity)).to<double>(), -infinity);
  EXPECT_TRUE(std::isnan((ExactValue(infinity) - ExactValue(infinity)).to<double>()));
  EXPECT_FALSE(ExactValue(nan) == ExactValue(nan));
  EXPECT_TRUE(ExactValue(infinity) == ExactValue(infinity));
  EXPECT_FALSE(ExactValue(infinity) == ExactValue(0));
  EXPECT_EQ(pivot(ExactValue(-infinity).to<Interval<40>>()), -infinity);
  EXPECT_TRUE(std::isnan(pivot(ExactValue(nan).to<Real100>())));
}

// Halfway between neighbours, and one bit of 2^-2000 above and below. Catches: a conversion to double through
// a number that is itself rounded.
TEST(ExactValue, RoundsTiesToEvenOnce) {
  const ExactValue tiny(ExactValue::Integer(1), -2000);
  const double smallest = std::numeric_limits<double>::denorm_min();
  for (double low : {1.0, 1 + std::ldexp(1.0, -52), std::ldexp(1.0, -1022), smallest, 3 * smallest, 1e300}) {
    const double high = std::nextafter(low, infinity);
    const ExactValue middle = exact((rational(low) + rational(high)) / 2);
    const double even = std::bit_cast<std::uint64_t>(low) % 2 == 0 ? low : high;
    EXPECT_EQ(middle.to<double>(), even);
    EXPECT_EQ((middle + tiny).to<double>(), high);
    EXPECT_EQ((middle - tiny).to<double>(), low);
    EXPECT_EQ((tiny - middle).to<double>(), -low);
  }
  EXPECT_EQ(ExactValue(ExactValue::Integer(1), -1075).to<double>(), 0);  // tie between 0 and the smallest
  EXPECT_EQ((ExactValue(ExactValue::Integer(1), -1075) + tiny).to<double>(), smallest);
  EXPECT_EQ(ExactValue(ExactValue::Integer(1), 1024).to<double>(), infinity);
}

}  // namespace
}  // namespace fljsd
