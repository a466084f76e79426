// SPDX-License-Identifier: Apache-2.0
#include "reference/tensor_core.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace fljsd {
namespace {

// A number as its format spells it, ±significand · 2^(exponent − fraction_bits): normal numbers have their
// leading one at 2^exponent, subnormal ones the exponent of the smallest normal number and no leading one.
struct Unpacked {
  bool negative = false;
  std::int64_t significand = 0;
  int exponent = 0, fraction_bits = 0;
  bool infinite = false, nan = false;
};

Unpacked unpack(std::uint32_t bits, int exponent_bits, int fraction_bits) {
  const int field_limit = (1 << exponent_bits) - 1, bias = field_limit >> 1;
  const int field = static_cast<int>(bits >> fraction_bits) & field_limit;
  const std::int64_t fraction = bits & ((1u << fraction_bits) - 1);
  Unpacked x;
  x.negative = (bits >> (exponent_bits + fraction_bits) & 1) != 0;
  x.fraction_bits = fraction_bits;
  x.infinite = field == field_limit && fraction == 0;
  x.nan = field == field_limit && fraction != 0;
  x.significand = field == 0 ? fraction : fraction | std::int64_t{1} << fraction_bits;
  x.exponent = std::max(field, 1) - bias;
  return x;
}

// The exact product. Its significand may reach 4: the exponent is the sum of the exponents.
Unpacked operator*(const Unpacked& a, const Unpacked& b) {
  Unpacked product;
  product.negative = a.negative != b.negative;
  product.significand = a.significand * b.significand;
  product.exponent = a.exponent + b.exponent;
  product.fraction_bits = a.fraction_bits + b.fraction_bits;
  product.infinite = a.infinite || b.infinite;
  const bool zero = (!a.infinite && a.significand == 0) || (!b.infinite && b.significand == 0);
  product.nan = a.nan || b.nan || (product.infinite && zero);
  return product;
}

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr int most_products = 32;
constexpr std::uint32_t sign_bit = 0x80000000, infinity_bits = 0x7f800000, nan_bits = 0x7fffffff;

// What was dropped is less than this much.
struct Packed {
  std::uint32_t bits;
  double dropped;
};

// sum · 2^unit rounded toward zero to fp32; infinite beyond its largest number.
Packed pack(std::int64_t sum, int unit) {
  const std::uint32_t sign = sum < 0 ? sign_bit : 0;
  const std::uint64_t whole = sum < 0 ? 0 - static_cast<std::uint64_t>(sum) : static_cast<std::uint64_t>(sum);
  // Drop what lies below the 24 leading bits, or below the smallest subnormal number.
  const int drop = std::max(static_cast<int>(std::bit_width(whole)) - 24, -149 - unit);
  const std::uint64_t magnitude = drop >= 64 ? 0 : drop > 0 ? whole >> drop : whole << -drop;
  const bool exact = drop <= 0 || (drop < 64 && magnitude << drop == whole);
  const double dropped = exact ? 0 : std::ldexp(1.0, unit + drop);
  if (magnitude == 0) return {0, dropped};                                                   // never -0
  if (magnitude < 0x800000) return {sign | static_cast<std::uint32_t>(magnitude), dropped};  // subnormal
  const int exponent = unit + drop + 23;
  if (exponent > 127) return {sign | infinity_bits, infinity};
  return {sign | static_cast<std::uint32_t>(exponent + 127) << 23 |
              (static_cast<std::uint32_t>(magnitude) & 0x7fffff),
          dropped};
}

// One step of the tensor core: the accumulator and up to core.block products.
class Block {
 public:
  explicit Block(const TensorCore& core) : core_(core), largest_exponent_(core.least_exponent) {}

  void add(const Unpacked& addend) {
    nan_ = nan_ || addend.nan;
    if (addend.infinite && !addend.nan) (addend.negative ? minus_infinity_ : plus_infinity_) = true;
    if (addend.infinite || addend.nan || addend.significand == 0) return;
    addends_[static_cast<std::size_t>(count_++)] = addend;
    largest_exponent_ = std::max(largest_exponent_, addend.exponent);
  }

  Packed sum() const {
    if (nan_ || (plus_infinity_ && minus_infinity_)) return {nan_bits, infinity};
    if (plus_infinity_) return {infinity_bits, infinity};
    if (minus_infinity_) return {sign_bit | infinity_bits, infinity};
    const int unit = largest_exponent_ - core_.fraction_bits;
    std::int64_t total = 0;
    int truncated = 0;
    for (int i = 0; i < count_; ++i) {
      const Unpacked& x = addends_[static_cast<std::size_t>(i)];
      const int left = x.exponent - x.fraction_bits - unit;
      std::int64_t aligned = 0;
      if (left >= 0) {
        aligned = x.significand << left;
      } else {
        aligned = left > -63 ? x.significand >> -left : 0;
        truncated += left <= -63 || aligned << -left != x.significand;
      }
      total += x.negative ? -aligned : aligned;
    }
    Packed packed = pack(total, unit);
    packed.dropped += truncated * std::ldexp(1.0, unit);
    return packed;
  }

 private:
  const TensorCore& core_;
  std::array<Unpacked, 1 + most_products> addends_;
  int count_ = 0;
  int largest_exponent_;
  bool nan_ = false, plus_infinity_ = false, minus_infinity_ = false;
};

}  // namespace

BoundedSum tensor_core_dot_with_bound(const TensorCore& core, DType dtype, const std::uint16_t* a,
                                      const std::uint16_t* b, Index count, float accumulator) {
  if (dtype != DType::bf16 && dtype != DType::f16)
    throw std::invalid_argument(std::string("A tensor core's operands are bf16 or f16, not ") + name(dtype) +
                                '.');
  if (core.block < 1 || core.block > most_products)
    throw std::invalid_argument("A tensor core's block is 1 to " + std::to_string(most_products) +
                                " products, not " + std::to_string(core.block) + '.');
  const int exponent_bits = dtype == DType::bf16 ? 8 : 5, fraction_bits = 15 - exponent_bits;
  Packed sum{std::bit_cast<std::uint32_t>(accumulator), 0};
  double error = 0;
  for (Index first = 0; first < count; first += core.block) {
    Block block(core);
    block.add(unpack(sum.bits, 8, 23));
    for (Index k = first; k < std::min<Index>(count, first + core.block); ++k)
      block.add(unpack(a[k], exponent_bits, fraction_bits) * unpack(b[k], exponent_bits, fraction_bits));
    sum = block.sum();
    error += sum.dropped;
  }
  // The bound's own additions round by 2^-53 each.
  return {std::bit_cast<float>(sum.bits), error * (1 + 0x1p-52 * static_cast<double>(count + 1))};
}

float tensor_core_dot(const TensorCore& core, DType dtype, const std::uint16_t* a, const std::uint16_t* b,
                      Index count, float accumulator) {
  return tensor_core_dot_with_bound(core, dtype, a, b, count, accumulator).value;
}

}  // namespace fljsd
