// SPDX-License-Identifier: Apache-2.0
// tensor_core_dot() for many dot products at once. The arithmetic is the same; it is arranged so that every
// step is the same operation on `lanes` entries of the vocabulary, which compilers turn into vector
// instructions:
//
//   - operands are unpacked once, the weight's rows side by side;
//   - addends are 32-bit integers: a product is below 4·2^fraction_bits = 2^27, half a block's sum below
//   2^30;
//   - a block's sum is exact as a double, and clearing all but 24 of its 53 bits truncates it.
//
// Where that does not hold (operands or sums that are not finite, results that are subnormal), the lane is
// left to tensor_core_dot().
#include "reference/rounding/tensor_core_products.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "reference/parallel.h"

namespace fljsd {
namespace {

constexpr int lanes = 16;
constexpr int block = 16;
// The exponent of a zero operand: such a product never has the largest exponent, and is 0 wherever it is
// shifted.
constexpr int no_exponent = -2000;

struct Operand {
  std::int16_t significand;  // signed
  std::int16_t exponent;
};

struct FormatBits {
  explicit FormatBits(DType dtype)
      : fraction(dtype == DType::bf16 ? 7 : 10), limit(dtype == DType::bf16 ? 255 : 31), bias(limit >> 1) {}
  int fraction, limit, bias;

  Operand unpack(std::uint16_t bits) const {
    const int field = bits >> fraction & limit;
    const int magnitude = (bits & ((1 << fraction) - 1)) | (field != 0 ? 1 << fraction : 0);
    const int exponent = magnitude != 0 ? std::max(field, 1) - bias : no_exponent;
    return {static_cast<std::int16_t>(bits & 0x8000 ? -magnitude : magnitude),
            static_cast<std::int16_t>(exponent)};
  }
  bool finite(std::uint16_t bits) const { return (bits >> fraction & limit) != limit; }
};

// The bits of one row, padded with +0.
void copy_row(const MatrixView& matrix, Index row, std::span<std::uint16_t> to) {
  std::fill(to.begin(), to.end(), std::uint16_t{0});
  std::memcpy(to.data(), static_cast<const std::byte*>(matrix.data) + row * matrix.row_stride * 2,
              static_cast<std::size_t>(matrix.cols) * 2);
}

struct TokenRow {
  std::vector<std::uint16_t> bits;
  std::vector<Operand> operands;
  bool finite = true;
};

TokenRow token_row(const MatrixView& input, Index token, Index depth, const FormatBits& format) {
  TokenRow row;
  row.bits.resize(static_cast<std::size_t>(depth));
  copy_row(input, token, row.bits);
  for (const std::uint16_t bits : row.bits) {
    row.operands.push_back(format.unpack(bits));
    row.finite = row.finite && format.finite(bits);
  }
  return row;
}

// `lanes` rows of the weight side by side, element k of all of them together.
struct WeightRows {
  std::vector<std::uint16_t> bits;                  // [lanes, depth]
  std::vector<std::int16_t> significand, exponent;  // [depth, lanes]
  bool finite[lanes];

  void load(const MatrixView& weight, Index first, Index count, Index depth, const FormatBits& format) {
    const auto size = static_cast<std::size_t>(lanes * depth);
    bits.assign(size, 0);
    significand.resize(size);
    exponent.resize(size);
    for (Index lane = 0; lane < lanes; ++lane) {
      const std::span<std::uint16_t> row =
          std::span(bits).subspan(static_cast<std::size_t>(lane * depth), static_cast<std::size_t>(depth));
      if (lane < count) copy_row(weight, first + lane, row);
      bool all = true;
      for (Index k = 0; k < depth; ++k) {
        const std::uint16_t code = row[static_cast<std::size_t>(k)];
        const Operand operand = format.unpack(code);
        significand[static_cast<std::size_t>(k * lanes + lane)] = operand.significand;
        exponent[static_cast<std::size_t>(k * lanes + lane)] = operand.exponent;
        all = all && format.finite(code);
      }
      finite[lane] = all;
    }
  }
};

// One number for each lane. GCC and Clang turn operations on these into whatever vectors the processor has.
using Ints = std::int32_t __attribute__((vector_size(lanes * 4)));
using Shorts = std::int16_t __attribute__((vector_size(lanes * 2)));
using Doubles = double __attribute__((vector_size(lanes * 8)));
using Longs = std::int64_t __attribute__((vector_size(lanes * 8)));
using Floats = float __attribute__((vector_size(lanes * 4)));

inline void widen(const std::int16_t* from, Ints& to) {
  Shorts shorts;
  std::memcpy(&shorts, from, sizeof shorts);
  to = __builtin_convertvector(shorts, Ints);
}

// x = |x| · 2^left / 2^right rounded toward zero, with the sign of x.
inline void align(Ints& x, int left, const Ints& right) {
  const Ints sign = x >> 31, magnitude = ((x ^ sign) - sign) << left;
  x = ((magnitude >> (right < 31 ? right : 31)) ^ sign) - sign;
}

// Takes sums apart: signed significand with 23 bits of fraction, exponent.
inline void unpack(const Ints& bits, Ints& significand, Ints& exponent) {
  const Ints field = bits >> 23 & 0xff, sign = bits >> 31;
  const Ints magnitude = (bits & 0x7fffff) | (field != 0 ? Ints{} + (1 << 23) : Ints{});
  significand = (magnitude ^ sign) - sign;
  exponent = magnitude != 0 ? (field > 1 ? field : 1) - 127 : Ints{} + no_exponent;
}

// One token against `lanes` rows. Sets odd[lane] where the answer is not to be used.
void dot_lanes(const TensorCore& core, int product_fraction, const Operand* token, const WeightRows& weight,
               Index depth, float* out, bool* odd) {
  Ints sum{};  // fp32 bits
  Longs is_odd{};
  const int left = core.fraction_bits - product_fraction;
  for (Index k0 = 0; k0 < depth; k0 += block) {
    const std::int16_t* const significand = weight.significand.data() + k0 * lanes;
    const std::int16_t* const exponent = weight.exponent.data() + k0 * lanes;

    Ints old, old_exponent;
    unpack(sum, old, old_exponent);
    Ints largest = old_exponent > core.least_exponent ? old_exponent : core.least_exponent;
#pragma GCC unroll 16
    for (int k = 0; k < block; ++k) {
      Ints e;
      widen(exponent + k * lanes, e);
      e += token[k0 + k].exponent;
      largest = e > largest ? e : largest;
    }

    Ints half[2] = {};
#pragma GCC unroll 16
    for (int k = 0; k < block; ++k) {
      Ints e, product;
      widen(exponent + k * lanes, e);
      widen(significand + k * lanes, product);
      product *= token[k0 + k].significand;
      align(product, left, largest - (e + token[k0 + k].exponent));
      half[k / (block / 2)] += product;
    }
    align(old, core.fraction_bits - 23, largest - old_exponent);

    const Doubles total = __builtin_convertvector(half[0], Doubles) +
                          __builtin_convertvector(half[1], Doubles) + __builtin_convertvector(old, Doubles);
    const Longs truncated = (Longs)total & ~((std::int64_t{1} << 29) - 1);
    const Longs unit = (__builtin_convertvector(largest, Longs) + (1023 - core.fraction_bits)) << 52;
    const Doubles result = (Doubles)truncated * (Doubles)unit;
    const Doubles size = result < 0 ? -result : result;
    is_odd |= (size >= 0x1p128) | ((size < 0x1p-126) & (size != 0));
    const Floats rounded = __builtin_convertvector(result, Floats);
    sum = (Ints)rounded;
  }
  for (int lane = 0; lane < lanes; ++lane) {
    out[lane] = std::bit_cast<float>(sum[lane]);
    odd[lane] = is_odd[lane] != 0;
  }
}

}  // namespace

bool suits_tensor_core(const MatrixView& input, const MatrixView& weight) {
  return input.dtype == weight.dtype && (input.dtype == DType::bf16 || input.dtype == DType::f16);
}

std::vector<float> tensor_core_products(const TensorCore& core, const MatrixView& input,
                                        std::span<const Index> tokens, const MatrixView& weight,
                                        Index vocab) {
  const FormatBits format(input.dtype);
  if (!suits_tensor_core(input, weight) || core.block != block || core.fraction_bits < 23 ||
      core.fraction_bits > 25 || core.least_exponent < -900)
    throw std::invalid_argument("tensor_core_products: the operands or the tensor core are not supported.");
  const Index depth = (input.cols + block - 1) / block * block;
  std::vector<TokenRow> rows;
  for (const Index token : tokens) rows.push_back(token_row(input, token, depth, format));

  std::vector<float> out(tokens.size() * static_cast<std::size_t>(vocab));
  parallel_for((vocab + lanes - 1) / lanes, [&](Index group) {
    thread_local WeightRows weights;
    const Index first = group * lanes, count = std::min<Index>(lanes, vocab - first);
    weights.load(weight, first, count, depth, format);
    for (std::size_t t = 0; t < rows.size(); ++t) {
      const TokenRow& row = rows[t];
      float result[lanes];
      bool odd[lanes];
      dot_lanes(core, 2 * format.fraction, row.operands.data(), weights, depth, result, odd);
      for (Index lane = 0; lane < count; ++lane) {
        float& to = out[t * static_cast<std::size_t>(vocab) + static_cast<std::size_t>(first + lane)];
        to = odd[lane] || !row.finite || !weights.finite[lane]
                 ? tensor_core_dot(core, input.dtype, row.bits.data(), weights.bits.data() + lane * depth,
                                   depth)
                 : result[lane];
      }
    }
  });
  return out;
}

}  // namespace fljsd
