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

namespace {

// Local to this file: a public function in position-independent code may be replaced when a program is
// loaded, so compilers neither inline it into the loops below nor vectorise them.
float decode_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

float decode_f16(std::uint16_t bits) {
  return static_cast<float>(Eigen::numext::bit_cast<Eigen::half>(bits));
}

}  // namespace

float bf16_to_float(std::uint16_t bits) {
  return decode_bf16(bits);
}

double bf16_to_double(std::uint16_t bits) {
  return decode_bf16(bits);
}

double f16_to_double(std::uint16_t bits) {
  return decode_f16(bits);
}

namespace {

// The 16-bit encoding of x, rounded once to nearest, ties to even; the same as encoding round_to(x). No
// branches, so that loops over it vectorise.
template <int fraction_bits, int bias>
std::uint16_t encode16(double x) {
  constexpr int cut = 52 - fraction_bits;
  constexpr std::uint64_t double_infinity = std::uint64_t{0x7ff} << 52;
  constexpr std::uint64_t infinity = std::uint64_t{2 * bias + 1} << fraction_bits;
  constexpr std::uint64_t quiet_nan = infinity | std::uint64_t{1} << (fraction_bits - 1);
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t sign = bits >> 63 << 15;
  const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);

  // Normal numbers: the two formats differ in the length of the fraction and in the exponent's bias. Adding
  // half a unit of the last place kept, less one where that place is 0, makes cutting round to even; a carry
  // runs into the exponent as it should.
  const std::uint64_t half = (std::uint64_t{1} << (cut - 1)) - 1 + (magnitude >> cut & 1);
  const std::uint64_t normal = ((magnitude + half) >> cut) - (std::uint64_t{1023 - bias} << fraction_bits);

  // Subnormal numbers: next to 2^52 units of the format's smallest number, a double's last place is that
  // unit, so the addition rounds and the sum's fraction is the encoding.
  constexpr double unit = std::bit_cast<double>(std::uint64_t{1024 - bias - fraction_bits} << 52);
  constexpr double smallest_normal = std::bit_cast<double>(std::uint64_t{1024 - bias} << 52);
  const double absolute = std::bit_cast<double>(magnitude);
  const std::uint64_t subnormal = std::bit_cast<std::uint64_t>(absolute + 0x1p52 * unit) & 0xffff;

  const std::uint64_t finite = absolute < smallest_normal ? subnormal : std::min(normal, infinity);
  return static_cast<std::uint16_t>(sign | (magnitude > double_infinity ? quiet_nan : finite));
}

}  // namespace

std::uint16_t bf16_from_double(double x) {
  return encode16<7, 127>(x);
}

std::uint16_t f16_from_double(double x) {
  return encode16<10, 15>(x);
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
        out[i] = static_cast<Out>(decode_bf16(element<std::uint16_t>(data, first + i)));
      }
      return;
    case DType::f16:
      for (Index i = 0; i < count; ++i) {
        out[i] = static_cast<Out>(decode_f16(element<std::uint16_t>(data, first + i)));
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

void store_run(DType dtype, void* data, Index first, Index count, const double* values) {
  switch (dtype) {
    case DType::bf16:
      for (Index i = 0; i < count; ++i) put(data, first + i, encode16<7, 127>(values[i]));
      return;
    case DType::f16:
      for (Index i = 0; i < count; ++i) put(data, first + i, encode16<10, 15>(values[i]));
      return;
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
  double value = 0;
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
