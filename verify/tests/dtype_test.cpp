// SPDX-License-Identifier: Apache-2.0
// The formats, exhaustively where 65536 values allow it.
#include "reference/dtype.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Narrow {
  DType dtype;
  double (*decode)(std::uint16_t);
  std::uint16_t (*encode)(double);
};
const Narrow narrow_formats[] = {{DType::bf16, bf16_to_double, bf16_from_double},
                                 {DType::f16, f16_to_double, f16_from_double}};

// What IEEE 754 says the bits mean, written from the definition.
double meaning(std::uint16_t bits, DType dtype) {
  const Format format = format_of(dtype);
  const int fraction_bits = format.precision - 1;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int field = (bits & 0x7fff) >> fraction_bits;
  const int all_ones = 0x7fff >> fraction_bits;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (field == all_ones) return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * infinity;
  if (field == 0) return sign * std::ldexp(fraction, format.min_exponent - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, field - 1 + format.min_exponent - fraction_bits);
}

// Catches: a decoder that flushes subnormals, drops the sign of zero or misreads infinity.
TEST(Dtype, DecodesEveryBitPattern) {
  for (const Narrow& f : narrow_formats) {
    for (int bits = 0; bits < 65536; ++bits) {
      const double expected = meaning(static_cast<std::uint16_t>(bits), f.dtype);
      const double actual = f.decode(static_cast<std::uint16_t>(bits));
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(actual)) << name(f.dtype) << " " << bits;
      } else {
        EXPECT_EQ(std::bit_cast<std::uint64_t>(expected), std::bit_cast<std::uint64_t>(actual))
            << name(f.dtype) << " " << bits;
      }
    }
  }
}

// Catches: an encoder that is wrong for any representable value.
TEST(Dtype, EncodingInvertsDecoding) {
  for (const Narrow& f : narrow_formats) {
    for (int bits = 0; bits < 65536; ++bits) {
      const double value = f.decode(static_cast<std::uint16_t>(bits));
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(f.decode(f.encode(value))));
      } else {
        EXPECT_EQ(f.encode(value), bits) << name(f.dtype);
      }
    }
  }
}

// Between each pair of neighbours: just below the midpoint, the midpoint, just above it. Catches truncation,
// ties away from zero, rounding twice through float, and a wrong overflow threshold.
TEST(Dtype, RoundsToNearestEvenBetweenAllNeighbours) {
  for (const Narrow& f : narrow_formats) {
    const int largest = 0x7fff >> (format_of(f.dtype).precision - 1)
                                      << (format_of(f.dtype).precision - 1);  // infinity
    for (int bits = 0; bits < largest; ++bits) {
      const double low = f.decode(static_cast<std::uint16_t>(bits));
      const double high = bits + 1 == largest ? std::ldexp(1.0, format_of(f.dtype).max_exponent + 1)
                                              : f.decode(static_cast<std::uint16_t>(bits + 1));
      const double middle = low + (high - low) / 2;  // exact: one more bit than the format has
      const int even = bits % 2 == 0 ? bits : bits + 1;
      for (double sign : {1.0, -1.0}) {
        const int sign_bit = sign < 0 ? 0x8000 : 0;
        EXPECT_EQ(f.encode(sign * std::nextafter(middle, 0)), bits | sign_bit) << name(f.dtype);
        EXPECT_EQ(f.encode(sign * middle), even | sign_bit) << name(f.dtype);
        EXPECT_EQ(f.encode(sign * std::nextafter(middle, infinity)), (bits + 1) | sign_bit) << name(f.dtype);
      }
    }
  }
}

// Catches: round_to() differing from the processor's own double -> float conversion.
TEST(Dtype, RoundsToFloatAsTheProcessorDoes) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000000; ++i) {
    // Exponents from far below float's subnormals to above its largest value.
    const double x = std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 320) - 220);
    EXPECT_EQ(round_to(DType::f32, x), static_cast<double>(static_cast<float>(x))) << x;
  }
}

// Over every value, every midpoint and its neighbours. Catches: a vectorised loop that rounds otherwise than
// one element does, and an encoder that differs from round_to().
TEST(Dtype, StoringARunStoresEachElement) {
  for (const Narrow& f : narrow_formats) {
    std::vector<double> values;
    for (int bits = 0; bits < 65536; ++bits) {
      const double low = f.decode(static_cast<std::uint16_t>(bits));
      const double middle = low + (f.decode(static_cast<std::uint16_t>(bits + 1)) - low) / 2;
      for (double x : {low, std::nextafter(middle, 0), middle, std::nextafter(middle, 2 * middle)})
        values.push_back(x);
    }
    const Index count = static_cast<Index>(values.size());
    std::vector<std::uint16_t> one_by_one(values.size()), run(values.size() + 1);
    for (Index i = 0; i < count; ++i)
      store(f.dtype, one_by_one.data(), i, values[static_cast<std::size_t>(i)]);
    store_run(f.dtype, run.data(), 1, count, values.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(run[i + 1], one_by_one[i]) << values[i];
      const double rounded = round_to(f.dtype, values[i]);
      EXPECT_TRUE(f.decode(run[i + 1]) == rounded || std::isnan(rounded)) << values[i];
    }
  }
}

// Catches: a load or store that needs alignment, or reads a neighbour.
TEST(Dtype, LoadsAndStoresUnaligned) {
  for (DType dtype : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
    std::byte bytes[8 * 5 + 1] = {};
    for (int i = 0; i < 5; ++i) store(dtype, bytes + 1, i, i - 1.5);
    double values[3];
    load_run(dtype, bytes + 1, 1, 3, values);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(values[i], i + 1 - 1.5);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(load(dtype, bytes + 1, i), i - 1.5);
  }
}

}  // namespace
}  // namespace fljsd
