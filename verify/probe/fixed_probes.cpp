// SPDX-License-Identifier: Apache-2.0
#include "verify/probe/fixed_probes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <optional>

namespace fljsd::probe {
namespace {

struct Factors {
  int k;
  double a, b;
};

std::uint32_t bits(double c) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(c));
}

class Maker {
 public:
  explicit Maker(DType dtype) : dtype_(dtype) {}

  std::vector<Probe> take() { return std::move(probes_); }
  DType dtype() const { return dtype_; }

  std::optional<std::uint16_t> encode(double x) const {
    const std::uint16_t code = dtype_ == DType::bf16 ? bf16_from_double(x) : f16_from_double(x);
    const double back = dtype_ == DType::bf16 ? bf16_to_double(code) : f16_to_double(code);
    if (std::isnan(x)) return code;
    return back == x && std::signbit(back) == std::signbit(x) ? std::optional(code) : std::nullopt;
  }

  // Adds the probe if the format can express its factors.
  void add(const std::string& group, const std::vector<Factors>& factors, std::uint32_t c = 0) {
    Probe probe;
    probe.group = group;
    probe.c = c;
    for (const Factors& f : factors) {
      const auto a = encode(f.a), b = encode(f.b);
      if (!a || !b) return;
      probe.a[static_cast<std::size_t>(f.k)] = *a;
      probe.b[static_cast<std::size_t>(f.k)] = *b;
    }
    probes_.push_back(probe);
  }

  void add_bits(const std::string& group, const Probe& probe) {
    probes_.push_back(probe);
    probes_.back().group = group;
  }

 private:
  DType dtype_;
  std::vector<Probe> probes_;
};

// A product of this value at place k: the significand in a, the exponent shared as evenly as possible.
Factors product(int k, double value) {
  int exponent = 0;
  const double significand = std::frexp(value, &exponent);  // in [½, 1)
  if (value == 0) return {k, value, 1};
  const int half = exponent / 2;
  return {k, std::ldexp(significand, half), std::ldexp(1.0, exponent - half)};
}

double power(int exponent) {
  return std::ldexp(1.0, exponent);
}

// +2^20 and −2^20 and a value that a sum aligned to them loses: it survives if it is added elsewhere.
void ask_which_products_are_added_at_once(Maker& make) {
  for (int r = 1; r < 16; ++r)
    for (int p = 1; p < 16; ++p)
      if (p != r)
        make.add("block-first", {product(0, power(20)), product(r, -power(20)), product(p, power(-10))});
  for (int q = 0; q < 16; ++q)
    for (int r = q + 1; r < 16; ++r) {
      std::vector<Factors> f{product(q, power(20)), product(r, -power(20))};
      for (int p = 0; p < 16; ++p)
        if (p != q && p != r) f.push_back(product(p, power(-10)));
      make.add("block-pairs", f);
    }
}

// The same with the accumulator as one of the two.
void ask_where_the_accumulator_enters(Maker& make) {
  for (int q = 0; q < 16; ++q)
    for (int p = 0; p < 16; ++p)
      if (p != q)
        make.add("accumulator-entry", {product(q, -power(20)), product(p, power(-10))}, bits(power(20)));
  for (int p = 0; p < 16; ++p) make.add("accumulator-only", {product(p, power(-30))}, bits(1));
}

// What remains of 2^-j·m beside +X and −X: how many bits below the leading one are kept, and how the rest is
// dropped. X as a product below 2, as a product above 2 (is it normalised before it is aligned?), as
// accumulator.
void ask_for_the_width(Maker& make) {
  for (const double m : {1.0, 1.5, 1.25, 1.984375})
    for (const double sign : {1.0, -1.0})
      for (int j = 16; j <= 40; ++j) {
        const Factors small = product(2, sign * m * power(-j));
        make.add("width-product", {product(0, 1), product(1, -1), small});
        make.add("width-product-negative-first", {product(0, -1.5), product(1, 1.5), small});
        make.add("width-product-above-2", {{0, 1.5, 1.5}, {1, -1.5, 1.5}, small});
        make.add("width-product-equal-to-2-above-2", {{0, 1.5, 1.5}, product(1, -2), small}, bits(-0.25));
        make.add("width-accumulator", {product(0, -1), small}, bits(1));
        make.add("width-accumulator-1.5", {product(0, -1.5), small}, bits(1.5));
        make.add("width-sum-above-2",
                 {product(0, 1.5), product(1, 1.5), product(3, -1.5), product(4, -1.5), small});
        make.add("width-sum-of-16",
                 {product(0, 1), product(1, 1), product(3, 1), product(4, 1), product(5, 1), product(6, 1),
                  product(7, 1), product(8, 1), product(9, -1), product(10, -1), product(11, -1),
                  product(12, -1), product(13, -1), product(14, -1), product(15, -2), small});
      }
}

// n equal small terms beside one large: what is dropped from each, what from the sum.
void ask_for_the_rounding(Maker& make) {
  for (const int n : {1, 2, 3, 4, 5, 7, 8, 12, 15})
    for (const double sign : {1.0, -1.0})
      for (int j = 21; j <= 29; ++j) {
        std::vector<Factors> small, with_product{product(0, 1)}, with_negative{product(0, -1)},
            with_large{{0, 1.5, 1.5}};
        for (int k = 1; k <= n; ++k) small.push_back(product(k, sign * power(-j)));
        for (auto* list : {&with_product, &with_negative, &with_large})
          list->insert(list->end(), small.begin(), small.end());
        make.add("rounding-product", with_product);
        make.add("rounding-negative-product", with_negative);
        make.add("rounding-product-above-2", with_large);
        for (const double c :
             {1.0, -1.0, 1.5, 1 - power(-24), -1 + power(-24), 1 + power(-23), 2 - power(-23)})
          make.add("rounding-accumulator", small, bits(c));
      }
}

// Sums that carry beyond the largest term.
void ask_for_carries(Maker& make) {
  const double largest = make.dtype() == DType::bf16 ? 2 - power(-7) : 2 - power(-10);
  for (int n = 1; n <= 16; ++n)
    for (const double c :
         {0.0, 1.0, 3.0, 4 - power(-22), 64 - power(-18), 63.0, -1.0, -64.0, power(-20), power(10)})
      for (const double sign : {1.0, -1.0}) {
        std::vector<Factors> f;
        for (int k = 0; k < n; ++k) f.push_back({k, sign * largest, largest});
        make.add("carry", f, bits(c));
      }
}

// Results below the normal numbers, and the smallest alignment there is.
void ask_about_underflow(Maker& make) {
  for (int e = 100; e <= 266; e += e >= 120 && e < 170 ? 1 : 10)
    for (const double m : {1.0, -1.9375}) {
      make.add("underflow", {product(0, m * power(-e))});
      make.add("underflow-subnormal-accumulator", {product(0, m * power(-e))}, 0x00000005);
      make.add("underflow-negative-accumulator", {product(0, m * power(-e))}, 0x80345677);
    }
  for (const int n : {2, 3, 4, 7, 8, 15, 16})
    for (int e = 120; e <= 170; ++e)
      for (const double sign : {1.0, -1.0}) {
        std::vector<Factors> f;
        for (int k = 0; k < n; ++k) f.push_back(product(k, sign * power(-e)));
        make.add("underflow-sum", f);
        make.add("underflow-sum-accumulator", f, 0x00000001);
      }
  // Is there a least exponent of alignment? (1 − 2^-8) + 2^-8·(1 − 2^-8) + … + 2^-j make exactly 2^-149
  // (beside 2^-e, if it is there), unless a bit of them is dropped.
  for (const int e : {130, 132, 134, 137, 141, 146, 150})
    for (int j = 1; j <= 28; ++j)
      for (const double sign : {1.0, -1.0}) {
        std::vector<Factors> f;
        for (int done = 0; done < j; done += 8) {
          const int bits_here = std::min(8, j - done);
          f.push_back(
              product(static_cast<int>(f.size()), sign * (1 - power(-bits_here)) * power(-149 - done)));
        }
        f.push_back(product(14, sign * power(-149 - j)));
        if (e < 150) f.push_back(product(15, sign * power(-e)));
        make.add("underflow-floor", f);
      }
  // Cancelling down to what is left: e fixes the leading term, j the remainder.
  for (int e = 90; e <= 150; e += 2)
    for (int j = 18; j <= 36; ++j)
      make.add("underflow-width", {product(0, power(-e)), product(1, -power(-e)), product(2, power(-e - j))});
  for (const std::uint32_t c :
       {0x00000001u, 0x007fffffu, 0x80000001u, 0x807fffffu, 0x00800000u, 0x80800000u}) {
    make.add("underflow-accumulator-alone", {}, c);
    for (int e = 120; e <= 155; ++e)
      make.add("underflow-product-and-accumulator", {product(3, -power(-e))}, c);
  }
}

// Is a subnormal operand normalised before its exponent counts? And does a zero's exponent count?
void ask_about_operands_without_leading_one(Maker& make) {
  const bool bf16 = make.dtype() == DType::bf16;
  const double tiny = bf16 ? power(-133) : power(-24), huge = bf16 ? power(127) : power(15);
  for (const double count : {1.0, 3.0, 64.0})
    for (int j = 5; j <= 45; ++j) {
      const double value = count * tiny * huge;
      make.add("subnormal-operand", {{0, count * tiny, huge}, product(1, -value), product(2, power(-j))});
      make.add("subnormal-operand-in-b",
               {{0, huge, count * tiny}, product(1, -value), product(2, power(-j))});
      make.add("subnormal-operands-cancel",
               {{0, count * tiny, huge}, {1, -count * tiny, huge}, product(2, power(-j))});
    }
  for (int j = 0; j <= 60; j += 2)
    for (const double zero : {0.0, -0.0}) {
      make.add("zero-times-huge", {{0, zero, huge}, product(1, power(-j)), product(2, power(-j - 12))});
      make.add("zero-times-huge-in-b", {{7, huge, zero}, product(1, power(-j)), product(2, power(-j - 12))});
    }
}

void ask_about_signed_zeros(Maker& make) {
  const std::uint32_t zeros[] = {0x00000000u, 0x80000000u};
  for (const std::uint32_t c : zeros) {
    for (int minus = 0; minus <= 16; ++minus) {
      std::vector<Factors> f;
      for (int k = 0; k < 16; ++k) f.push_back({k, k < minus ? -0.0 : 0.0, 1});
      make.add("signed-zero", f, c);
    }
    make.add("signed-zero-from-two-signs", {{0, -0.0, -1}, {1, 0.0, -1}}, c);
    make.add("zero-by-cancellation", {product(0, 1), product(1, -1)}, c);
    make.add("zero-by-cancellation", {product(0, -1), product(15, 1)}, c);
    for (const double sign : {1.0, -1.0})
      for (int e = 149; e <= 260; e += 3) make.add("zero-by-underflow", {product(0, sign * power(-e))}, c);
  }
  make.add("zero-by-cancellation-with-accumulator", {product(0, 1)}, bits(-1));
  make.add("zero-by-cancellation-with-accumulator", {product(0, -1)}, bits(1));
}

void ask_about_infinity_and_nan(Maker& make) {
  const double inf = INFINITY;
  const std::uint32_t plus_inf = 0x7f800000, minus_inf = 0xff800000;
  for (const double sign : {1.0, -1.0}) {
    make.add("inf-product", {{0, sign * inf, 1}});
    make.add("inf-product", {{5, 1, sign * inf}, product(6, -1)}, bits(3));
    make.add("inf-accumulator", {product(0, sign)}, plus_inf);
    make.add("inf-accumulator", {product(0, sign)}, minus_inf);
    make.add("inf-times-zero", {{0, sign * inf, 0.0}});
    make.add("inf-times-zero", {{0, -0.0, sign * inf}}, bits(1));
    make.add("inf-times-zero", {{0, sign * inf, 0.0}}, plus_inf);
    make.add("inf-minus-inf", {{0, sign * inf, 1}, {1, -sign * inf, 1}});
    make.add("inf-minus-inf", {{0, sign * inf, 1}, {15, -sign * inf, 1}}, bits(-7));
    make.add("inf-minus-inf-accumulator", {{0, sign * inf, 1}}, minus_inf);
    make.add("inf-minus-inf-accumulator", {{0, sign * inf, 1}}, plus_inf);
    make.add("inf-times-inf", {{0, sign * inf, inf}});
  }
  const bool bf16 = make.dtype() == DType::bf16;
  const std::uint16_t one = bf16 ? 0x3f80 : 0x3c00, quiet = bf16 ? 0x7fc0 : 0x7e00,
                      signalling = bf16 ? 0x7f81 : 0x7c01, payload = bf16 ? 0xffe5 : 0xfe35;
  for (const std::uint16_t nan : {quiet, signalling, payload})
    for (const std::uint32_t c : {0u, 0x3f800000u, plus_inf}) {
      Probe probe;
      probe.c = c;
      probe.a[4] = nan;
      probe.b[4] = one;
      make.add_bits("nan-in-a", probe);
      std::swap(probe.a[4], probe.b[4]);
      make.add_bits("nan-in-b", probe);
      probe.a[4] = 0;
      make.add_bits("nan-times-zero", probe);
    }
  for (const std::uint32_t c : {0x7fc00000u, 0x7f800001u, 0xffc00000u, 0xffa12345u, 0x7fffffffu}) {
    make.add("nan-accumulator", {}, c);
    make.add("nan-accumulator", {product(0, 1)}, c);
  }
}

void ask_about_overflow(Maker& make) {
  const std::uint32_t largest = 0x7f7fffff, minus_largest = 0xff7fffff;
  for (int e = 120; e <= 254; e += e < 132 ? 1 : 7)
    for (const double sign : {1.0, -1.0}) {
      make.add("overflow-product", {product(0, sign * power(e))});
      make.add("overflow-cancelled",
               {product(0, sign * power(e)), product(1, -sign * power(e)), product(2, 1)});
      make.add("overflow-cancelled-in-part", {product(0, sign * power(e)), product(1, -sign * power(e - 1))});
      make.add("overflow-with-accumulator", {product(0, sign * power(e))}, minus_largest);
      make.add("overflow-with-infinity", {product(0, sign * power(e))}, 0xff800000);
    }
  for (int n = 1; n <= 16; ++n)
    for (int e = 122; e <= 128; ++e) {
      std::vector<Factors> f;
      for (int k = 0; k < n; ++k) f.push_back(product(k, power(e)));
      make.add("overflow-sum", f);
      make.add("overflow-sum-and-accumulator", f, minus_largest);
    }
  for (int e = 95; e <= 106; ++e)
    for (const double m : {1.0, 1.5, 1.984375}) {
      make.add("overflow-by-rounding", {product(0, m * power(e))}, largest);
      make.add("overflow-by-rounding", {product(0, -m * power(e))}, minus_largest);
      make.add("overflow-by-rounding", {product(0, m * power(e)), product(1, m * power(e))}, largest);
    }
  make.add("overflow-fp16-largest", {{0, 65504, 65504}, {1, 65504, 65504}}, largest);
}

}  // namespace

std::vector<Probe> fixed_probes(DType dtype) {
  Maker make(dtype);
  ask_which_products_are_added_at_once(make);
  ask_where_the_accumulator_enters(make);
  ask_for_the_width(make);
  ask_for_the_rounding(make);
  ask_for_carries(make);
  ask_about_underflow(make);
  ask_about_operands_without_leading_one(make);
  ask_about_signed_zeros(make);
  ask_about_infinity_and_nan(make);
  ask_about_overflow(make);
  return make.take();
}

Products probe_products(DType dtype, const std::vector<Probe>& probes) {
  constexpr std::size_t per_tile = 8, depth = 16;
  const std::size_t tiles = (probes.size() + per_tile - 1) / per_tile;
  Products p{dtype, static_cast<Index>(tiles), tile_rows, tile_cols, depth, {}, {}, {}};
  p.a.resize(tiles * tile_rows * depth);
  p.b.resize(tiles * tile_cols * depth);
  p.c.resize(tiles * tile_rows * tile_cols);
  for (std::size_t i = 0; i < probes.size(); ++i) {
    const std::size_t tile = i / per_tile, slot = i % per_tile;
    for (std::size_t k = 0; k < depth; ++k) {
      p.a[(tile * tile_rows + slot) * depth + k] = probes[i].a[k];
      p.b[(tile * tile_cols + slot) * depth + k] = probes[i].b[k];
    }
    p.c[(tile * tile_rows + slot) * tile_cols + slot] = probes[i].c;
  }
  return p;
}

std::vector<std::uint32_t> probe_answers(const std::vector<std::uint32_t>& d, std::size_t probes) {
  std::vector<std::uint32_t> answers(probes);
  for (std::size_t i = 0; i < probes; ++i) answers[i] = d[(i / 8 * tile_rows + i % 8) * tile_cols + i % 8];
  return answers;
}

}  // namespace fljsd::probe
