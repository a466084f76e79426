// SPDX-License-Identifier: Apache-2.0
#include "verify/probe/random_products.h"

#include <array>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "verify/cases/random.h"

namespace fljsd::probe {
namespace {

constexpr std::array all_kinds{Kind::narrow,   Kind::medium,    Kind::wide,       Kind::any_finite,
                               Kind::any_bits, Kind::sparse,    Kind::cancelling, Kind::cancelled_by_c,
                               Kind::powers,   Kind::underflow, Kind::overflow,   Kind::ruled_by_c,
                               Kind::awkward};

double decode(DType dtype, std::uint16_t code) {
  return dtype == DType::bf16 ? bf16_to_double(code) : f16_to_double(code);
}
std::uint16_t encode(DType dtype, double x) {
  return dtype == DType::bf16 ? bf16_from_double(x) : f16_from_double(x);
}

// Exponents lo … hi of operands, and of what the accumulator adds to the products' exponents.
struct Range {
  int lo, hi, c_lo, c_hi;
};
Range range_of(Kind kind, bool bf16) {
  switch (kind) {
    case Kind::narrow: return {-2, 2, -6, 8};
    case Kind::wide: return bf16 ? Range{-30, 30, -60, 60} : Range{-24, 15, -48, 30};
    case Kind::powers: return bf16 ? Range{-20, 20, -40, 40} : Range{-14, 15, -30, 30};
    case Kind::underflow: return bf16 ? Range{-76, -58, -149, -118} : Range{-24, -14, -149, -30};
    case Kind::overflow: return bf16 ? Range{57, 66, 110, 127} : Range{10, 15, 100, 127};
    case Kind::ruled_by_c: return {-4, 4, 0, 34};
    default: return bf16 ? Range{-8, 8, -20, 20} : Range{-8, 8, -20, 20};
  }
}

// Words of a tile's stream: three for each element.
class Source {
 public:
  Source(DType dtype, Kind kind, const Random& random)
      : dtype_(dtype), kind_(kind), range_(range_of(kind, dtype == DType::bf16)), random_(random) {}

  // A finite number, or for some kinds anything, as the format's bits.
  std::uint16_t operand(Index i, bool in_a) const {
    const std::uint64_t word = random_.word(3 * i);
    const bool bf16 = dtype_ == DType::bf16;
    const auto any = static_cast<std::uint16_t>(word >> 48);
    const std::uint16_t exponent_mask = bf16 ? 0x7f80 : 0x7c00;
    switch (kind_) {
      case Kind::any_bits: return any;
      case Kind::any_finite:
        return (any & exponent_mask) == exponent_mask ? static_cast<std::uint16_t>(any & ~exponent_mask)
                                                      : any;
      case Kind::awkward: return awkward(i, any);
      case Kind::sparse:
        if (in_a && (word & 3) != 0) return static_cast<std::uint16_t>(any & 0x8000);
        break;
      default: break;
    }
    const int exponent = range_.lo + static_cast<int>(random_.below(3 * i + 1, range_.hi - range_.lo + 1));
    double significand = 1 + static_cast<double>(any & 0x7fff) * 0x1p-15;
    if (kind_ == Kind::powers) significand = 1;
    return encode(dtype_, std::ldexp(any & 0x8000 ? -significand : significand, exponent));
  }

  // The accumulator's fp32 bits.
  std::uint32_t accumulator(Index i) const {
    const std::uint64_t word = random_.word(3 * i);
    const auto any = static_cast<std::uint32_t>(word >> 32);
    if (kind_ == Kind::any_bits) return any;
    if (kind_ == Kind::any_finite) return (any & 0x7f800000) == 0x7f800000 ? any & ~0x7f800000u : any;
    if (kind_ == Kind::awkward) {
      constexpr std::array<std::uint32_t, 12> values{0x00000000, 0x80000000, 0x00000001, 0x807fffff,
                                                     0x00800000, 0x3f800000, 0xbf800001, 0x3f7fffff,
                                                     0x7f7fffff, 0xff7fffff, 0x7f800000, 0x7fc00000};
      return (word & 31) < values.size() ? values[word & 31] : any & 0xbfffffff;
    }
    if (kind_ != Kind::ruled_by_c && (word & 3) == 0) return any & 0x80000000;
    const int exponent =
        range_.c_lo + static_cast<int>(random_.below(3 * i + 1, range_.c_hi - range_.c_lo + 1));
    const double significand = 1 + static_cast<double>(any & 0x7fffff) * 0x1p-23;
    return std::bit_cast<std::uint32_t>(
        static_cast<float>(std::ldexp(any & 0x80000000 ? -significand : significand, exponent)));
  }

  std::uint64_t word(Index i) const { return random_.word(3 * i + 2); }

 private:
  std::uint16_t awkward(Index i, std::uint16_t any) const {
    const bool bf16 = dtype_ == DType::bf16;
    const auto sign = static_cast<std::uint16_t>(any & 0x8000);
    const auto which = random_.below(3 * i + 1, 64);
    const auto pick = [&](std::uint16_t of_bf16, std::uint16_t of_f16) {
      return static_cast<std::uint16_t>(sign | (bf16 ? of_bf16 : of_f16));
    };
    switch (which) {
      case 0:
      case 1:
      case 2: return pick(0, 0);
      case 3:
      case 4: return pick(0x0001, 0x0001);  // the smallest subnormal
      case 5:
      case 6: return pick(0x007f, 0x03ff);  // the largest
      case 7:
      case 8: return pick(0x0080, 0x0400);  // the smallest normal number
      case 9:
      case 10:
      case 11: return pick(0x3f80, 0x3c00);
      case 12:
      case 13: return pick(0x3f81, 0x3c01);
      case 14:
      case 15: return pick(0x3f7f, 0x3bff);
      case 16:
      case 17: return pick(0x7f7f, 0x7bff);
      case 18: return (random_.word(3 * i + 2) & 15) == 0 ? pick(0x7f80, 0x7c00) : pick(0x4000, 0x4000);
      case 19: return (random_.word(3 * i + 2) & 15) == 0 ? pick(0x7fc0, 0x7e00) : pick(0x4040, 0x4200);
      default: {
        const auto code = static_cast<std::uint16_t>(any & (bf16 ? 0xbfff : 0xffff));  // bf16: below 2
        const std::uint16_t mask = bf16 ? 0x7f80 : 0x7c00;
        return (code & mask) == mask ? sign : code;
      }
    }
  }

  DType dtype_;
  Kind kind_;
  Range range_;
  Random random_;
};

// Each element k of the second half is minus its partner in the first, in another place; B's partners agree,
// or differ in their last bit.
void make_cancel(Products& p, const Source& source, Index tile) {
  const Index half = p.depth / 2;
  // An odd multiplier permutes the places, as the depth is a power of two times 16.
  const Index step = 2 * static_cast<Index>(source.word(0) % 64) + 1;
  const auto place = [&](Index k) { return (k * step + tile) % p.depth; };
  for (Index r = 0; r < p.rows; ++r)
    for (Index k = 0; k < half; ++k) {
      std::uint16_t* const row = p.a.data() + (tile * p.rows + r) * p.depth;
      row[place(k + half)] = row[place(k)] ^ 0x8000;
    }
  for (Index r = 0; r < p.cols; ++r)
    for (Index k = 0; k < half; ++k) {
      std::uint16_t* const row = p.b.data() + (tile * p.cols + r) * p.depth;
      const bool differ = source.word(1000 + r * half + k) % 4 == 0;
      row[place(k + half)] = static_cast<std::uint16_t>(row[place(k)] ^ (differ ? 1 : 0));
    }
}

// C = −(A·Bᵀ) rounded, in one of two cases moved by up to 8 units in the last place.
void cancel_by_c(Products& p, const Source& source, Index tile) {
  for (Index r = 0; r < p.rows; ++r)
    for (Index c = 0; c < p.cols; ++c) {
      double dot = 0;
      for (Index k = 0; k < p.depth; ++k)
        dot += decode(p.dtype, p.a[static_cast<std::size_t>((tile * p.rows + r) * p.depth + k)]) *
               decode(p.dtype, p.b[static_cast<std::size_t>((tile * p.cols + c) * p.depth + k)]);
      const Index place = (tile * p.rows + r) * p.cols + c;
      const std::uint64_t word = source.word(1000 + r * p.cols + c);
      std::uint32_t code = std::bit_cast<std::uint32_t>(static_cast<float>(-dot));
      if (word & 1) code += static_cast<std::uint32_t>(word >> 32) % 17 - 8;
      p.c[static_cast<std::size_t>(place)] = code;
    }
}

}  // namespace

std::span<const Kind> kinds() {
  return all_kinds;
}

std::string_view name(Kind kind) {
  constexpr std::array<std::string_view, 13> names{
      "narrow",         "medium", "wide",      "any-finite", "any-bits",   "sparse", "cancelling",
      "cancelled-by-c", "powers", "underflow", "overflow",   "ruled-by-c", "awkward"};
  return names[static_cast<std::size_t>(kind)];
}

Products random_products(DType dtype, Kind kind, std::uint64_t seed, Index batch, Index depth) {
  if (dtype != DType::bf16 && dtype != DType::f16)
    throw std::invalid_argument("random_products: the format must be bf16 or f16.");
  Products p{dtype, batch, tile_rows, tile_cols, depth, {}, {}, {}};
  p.a.resize(static_cast<std::size_t>(batch * p.rows * depth));
  p.b.resize(static_cast<std::size_t>(batch * p.cols * depth));
  p.c.resize(static_cast<std::size_t>(batch * p.rows * p.cols));
  for (Index tile = 0; tile < batch; ++tile) {
    const auto stream = [&](std::uint64_t part) {
      const std::uint64_t of_kind = 4 * static_cast<std::uint64_t>(kind) + part;
      return Source(dtype, kind, Random(seed, static_cast<std::uint64_t>(tile) * 64 + of_kind));
    };
    const Source a = stream(0), b = stream(1), c = stream(2);
    for (Index i = 0; i < p.rows * depth; ++i)
      p.a[static_cast<std::size_t>(tile * p.rows * depth + i)] = a.operand(i, true);
    for (Index i = 0; i < p.cols * depth; ++i)
      p.b[static_cast<std::size_t>(tile * p.cols * depth + i)] = b.operand(i, false);
    for (Index i = 0; i < p.rows * p.cols; ++i)
      p.c[static_cast<std::size_t>(tile * p.rows * p.cols + i)] = c.accumulator(i);
    if (kind == Kind::cancelling) make_cancel(p, a, tile);
    if (kind == Kind::cancelled_by_c) cancel_by_c(p, c, tile);
  }
  return p;
}

Products random_gemm(DType dtype, Kind kind, std::uint64_t seed, Index rows, Index cols, Index depth) {
  Products p{dtype, 1, rows, cols, depth, {}, {}, {}};
  const Source a(dtype, kind, Random(seed, 0)), b(dtype, kind, Random(seed, 1));
  for (Index i = 0; i < rows * depth; ++i) p.a.push_back(a.operand(i, true));
  for (Index i = 0; i < cols * depth; ++i) p.b.push_back(b.operand(i, false));
  return p;
}

}  // namespace fljsd::probe
