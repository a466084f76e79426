// SPDX-License-Identifier: Apache-2.0
#include "reference/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include <Eigen/Core>

namespace fljsd {

const char* name(DType dtype) {
  switch (dtype) {
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::f32: return "f32";
    case DType::f64: return "f64";
  }
  return "?";
}

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
    case DType::f16: return 2;
    case DType::f32: return 4;
    case DType::f64: return 8;
  }
  return 0;
}

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::bf16: return {8, -126, 127};
    case DType::f16: return {11, -14, 15};
    case DType::f32: return {24, -126, 127};
    case DType::f64: return {53, -1022, 1023};
  }
  return {};
}

double unit_roundoff(DType dtype) {
  return std::ldexp(1.0, -format_of(dtype).precision);
}

double round_to(DType dtype, double x) {
  if (dtype == DType::f64 || x == 0 || !std::isfinite(x)) return x;
  const Format format = format_of(dtype);
  // Spacing of the format around x: below the smallest normal number it no longer shrinks.
  const int exponent = std::max(std::ilogb(x), format.min_exponent);
  const int last_bit = exponent - (format.precision - 1);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -last_bit)), last_bit);
  if (std::abs(rounded) >= std::ldexp(1.0, format.max_exponent + 1)) {
    return std::copysign(std::numeric_limits<double>::infinity(), x);
  }
  return std::copysign(rounded, x);
}

float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

double bf16_to_double(std::uint16_t bits) {
  return bf16_to_float(bits);
}

double f16_to_double(std::uint16_t bits) {
  return static_cast<float>(Eigen::numext::bit_cast<Eigen::half>(bits));
}

namespace {

// The encoding of a value that round_to() has made representable: sign, biased exponent, fraction.
std::uint16_t encode16(double x, Format format) {
  const int fraction_bits = format.precision - 1;
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const std::uint16_t infinity = static_cast<std::uint16_t>(0x7fff >> fraction_bits << fraction_bits);
  if (std::isnan(x)) return static_cast<std::uint16_t>(sign | infinity | (1 << (fraction_bits - 1)));
  if (std::isinf(x)) return sign | infinity;
  if (x == 0) return sign;
  const int exponent = std::max(std::ilogb(x), format.min_exponent);
  const int significand = static_cast<int>(std::ldexp(std::abs(x), fraction_bits - exponent));
  // A normal significand carries the hidden bit, which adds one to the exponent field below it; a subnormal
  // does not, so its field stays 0. One formula serves both.
  return static_cast<std::uint16_t>(sign |
                                    (((exponent - format.min_exponent) << fraction_bits) + significand));
}

}  // namespace

std::uint16_t bf16_from_double(double x) {
  return encode16(round_to(DType::bf16, x), format_of(DType::bf16));
}

std::uint16_t f16_from_double(double x) {
  return encode16(round_to(DType::f16, x), format_of(DType::f16));
}

namespace {

// Element i of packed data that need not be aligned: a tensor may sit anywhere in a mapped file.
template <class Stored>
Stored element(const void* data, Index i) {
  Stored value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + i * Index{sizeof(Stored)}, sizeof(Stored));
  return value;
}

template <class Stored>
void put(void* data, Index i, Stored value) {
  std::memcpy(static_cast<std::byte*>(data) + i * Index{sizeof(Stored)}, &value, sizeof(Stored));
}

// One loop per format, so that the switch stays outside the loops and each vectorises.
template <class Out>
void load_run_as(DType dtype, const void* data, Index first, Index count, Out* out) {
  switch (dtype) {
    case DType::bf16:
      for (Index i = 0; i < count; ++i) {
        out[i] = static_cast<Out>(bf16_to_float(element<std::uint16_t>(data, first + i)));
      }
      return;
    case DType::f16:
      for (Index i = 0; i < count; ++i) {
        out[i] = static_cast<Out>(f16_to_double(element<std::uint16_t>(data, first + i)));
      }
      return;
    case DType::f32:
      for (Index i = 0; i < count; ++i) out[i] = static_cast<Out>(element<float>(data, first + i));
      return;
    case DType::f64:
      for (Index i = 0; i < count; ++i) out[i] = static_cast<Out>(element<double>(data, first + i));
      return;
  }
}

}  // namespace

namespace {

// The 16-bit encoding of x when it is zero or neither underflows nor overflows there; else `done` is cleared.
// A double and the format differ in the length of the fraction and in the exponent bias, so cutting the
// fraction (to nearest, ties to even: adding half a unit, less one where the last kept bit is 0, carries into
// the exponent as it should) and moving the bias is the whole conversion. No branches: the loop over it
// vectorises.
template <int fraction_bits, int bias>
std::uint16_t encode_normal(double x, bool& done) {
  constexpr int cut = 52 - fraction_bits;
  constexpr std::uint64_t smallest = std::uint64_t{1024 - bias} << fraction_bits;
  constexpr std::uint64_t infinity = std::uint64_t{1024 + bias} << fraction_bits;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
  const std::uint64_t last_kept = magnitude >> cut & 1;
  const std::uint64_t rounded = (magnitude + (std::uint64_t{1} << (cut - 1)) - 1 + last_kept) >> cut;
  const bool zero = magnitude == 0;
  // `magnitude` must be normal too: a value just below the smallest normal number may round up to it, but not
  // by this rule. Comparing the exponent before rounding covers that.
  done = done & (zero | ((magnitude >> cut >= smallest) & (rounded < infinity)));
  const std::uint64_t shifted = rounded - (std::uint64_t{1023 - bias} << fraction_bits);
  return static_cast<std::uint16_t>((bits >> 63 << 15) | (zero ? 0 : shifted));
}

template <int fraction_bits, int bias>
void store_run16(DType dtype, void* data, Index first, Index count, const double* values) {
  constexpr Index block = 256;
  for (Index i = 0; i < count; i += block) {
    const Index n = std::min(block, count - i);
    std::uint16_t encoded[block];
    bool done = true;
    for (Index j = 0; j < n; ++j) encoded[j] = encode_normal<fraction_bits, bias>(values[i + j], done);
    if (done) {
      std::memcpy(static_cast<std::byte*>(data) + (first + i) * 2, encoded, static_cast<std::size_t>(n) * 2);
    } else {
      for (Index j = 0; j < n; ++j) store(dtype, data, first + i + j, values[i + j]);
    }
  }
}

}  // namespace

void store_run(DType dtype, void* data, Index first, Index count, const double* values) {
  switch (dtype) {
    case DType::bf16: store_run16<7, 127>(dtype, data, first, count, values); return;
    case DType::f16: store_run16<10, 15>(dtype, data, first, count, values); return;
    case DType::f32:
      for (Index i = 0; i < count; ++i) put(data, first + i, static_cast<float>(values[i]));
      return;
    case DType::f64:
      for (Index i = 0; i < count; ++i) put(data, first + i, values[i]);
      return;
  }
}

void load_run(DType dtype, const void* data, Index first, Index count, double* out) {
  load_run_as(dtype, data, first, count, out);
}

void load_run(DType dtype, const void* data, Index first, Index count, float* out) {
  load_run_as(dtype, data, first, count, out);
}

double load(DType dtype, const void* data, Index index) {
  double value;
  load_run(dtype, data, index, 1, &value);
  return value;
}

void store(DType dtype, void* data, Index index, double x) {
  switch (dtype) {
    case DType::bf16: put(data, index, bf16_from_double(x)); return;
    case DType::f16: put(data, index, f16_from_double(x)); return;
    case DType::f32: put(data, index, static_cast<float>(x)); return;
    case DType::f64: put(data, index, x); return;
  }
}

}  // namespace fljsd
