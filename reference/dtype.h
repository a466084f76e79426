// SPDX-License-Identifier: Apache-2.0
// The four storage formats, and the exact conversions between them and double.
//
// Every bf16, fp16 and fp32 value is a double, so decoding is exact. Encoding rounds once, to nearest with
// ties to even, from double directly: going through float first would round twice.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fljsd {

using Index = std::int64_t;

enum class DType { bf16, f16, f32, f64 };

// Short lower-case name: "bf16", "f16", "f32", "f64".
const char* name(DType dtype);

// Bytes of one element: 2, 2, 4 or 8.
std::size_t size_of(DType dtype);

// A binary floating-point format with subnormals: `precision` significant bits (the hidden one included),
// normal numbers 2^min_exponent <= |x| < 2^(max_exponent + 1).
struct Format {
  int precision;
  int min_exponent;
  int max_exponent;
};
Format format_of(DType dtype);

// The unit roundoff 2^-precision: |round_to(dtype, x) - x| <= unit_roundoff(dtype) * |x| when nothing under-
// or overflows.
double unit_roundoff(DType dtype);

// x rounded to the format, once, to nearest even; overflow gives infinity, NaN stays NaN, and the sign of
// zero is kept.
double round_to(DType dtype, double x);

double bf16_to_double(std::uint16_t bits);
double f16_to_double(std::uint16_t bits);
float bf16_to_float(std::uint16_t bits);
std::uint16_t bf16_from_double(double x);
std::uint16_t f16_from_double(double x);

// Element `index` of a packed array of `dtype`, exactly.
double load(DType dtype, const void* data, Index index);

// Stores x, rounded once, as element `index` of a packed array of `dtype`.
void store(DType dtype, void* data, Index index, double x);

// `count` values, each rounded once, as the elements from `first` on.
void store_run(DType dtype, void* data, Index first, Index count, const double* values);

// `count` elements starting at element `first`, decoded exactly; the loops behind every matrix product.
void load_run(DType dtype, const void* data, Index first, Index count, double* out);
void load_run(DType dtype, const void* data, Index first, Index count,
              float* out);  // f64 is rounded to float

}  // namespace fljsd
