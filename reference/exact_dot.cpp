// SPDX-License-Identifier: Apache-2.0
#include "reference/exact_dot.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace fljsd {
namespace {

using Integer = ExactValue::Integer;
__extension__ typedef __int128 Int128;

// high · 2^(64·limbs.size()) + the unsigned number in `limbs`, least significant first.
Integer assemble(Int128 high, const std::vector<std::uint64_t>& limbs) {
  Integer low, result = static_cast<std::int64_t>(high >> 64);
  mpz_import(low.backend().data(), limbs.size(), -1, sizeof(std::uint64_t), 0, 0, limbs.data());
  result = (result << 64) + static_cast<std::uint64_t>(high);
  return (result << (64 * limbs.size())) + low;
}

}  // namespace

ExactValue::ExactValue(double x) {
  if (!std::isfinite(x)) {
    special_ = x;
    return;
  }
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);  // x = fraction · 2^exponent, |fraction| < 1
  *this = ExactValue(Integer(static_cast<std::int64_t>(std::ldexp(fraction, 53))), exponent - 53);
}

ExactValue::ExactValue(const Integer& significand, Index exponent)
    : significand_(significand), exponent_(exponent) {
  if (significand_ == 0) {
    exponent_ = 0;
    return;
  }
  const auto zeros = mpz_scan1(significand_.backend().data(), 0);  // trailing zero bits
  significand_ >>= zeros;
  exponent_ += static_cast<Index>(zeros);
}

ExactValue operator+(const ExactValue& a, const ExactValue& b) {
  if (!a.is_finite() || !b.is_finite()) return ExactValue(a.special_ + b.special_);
  if (a.significand_ == 0) return b;
  if (b.significand_ == 0) return a;
  const Index exponent = std::min(a.exponent_, b.exponent_);
  return ExactValue(
      (a.significand_ << (a.exponent_ - exponent)) + (b.significand_ << (b.exponent_ - exponent)), exponent);
}

ExactValue operator-(const ExactValue& a, const ExactValue& b) {
  ExactValue minus_b = b;
  minus_b.significand_ = -minus_b.significand_;
  minus_b.special_ = -minus_b.special_;
  return a + minus_b;
}

bool operator==(const ExactValue& a, const ExactValue& b) {
  return a.special_ == b.special_ && a.exponent_ == b.exponent_ && a.significand_ == b.significand_;
}

template <>
double ExactValue::to<double>() const {
  if (!is_finite()) return special_;
  if (significand_ == 0) return 0;
  // Exact in as many bits as the significand has; mpfr_get_d then rounds once, subnormals included.
  mpfr_t exact;
  mpfr_init2(exact, static_cast<mpfr_prec_t>(std::max<std::size_t>(
                        mpz_sizeinbase(significand_.backend().data(), 2), MPFR_PREC_MIN)));
  mpfr_set_z_2exp(exact, significand_.backend().data(), exponent_, MPFR_RNDN);
  const double rounded = mpfr_get_d(exact, MPFR_RNDN);
  mpfr_clear(exact);
  return rounded;
}

template <>
Real100 ExactValue::to<Real100>() const {
  if (!is_finite()) return Real100(special_);
  Real100 result;
  mpfr_set_z_2exp(result.backend().data(), significand_.backend().data(), exponent_, MPFR_RNDN);
  return result;
}

template <class Real>
Real ExactValue::to() const {  // Interval<N>
  if (!is_finite()) return Real(special_);
  Real result;
  mpfr_set_z_2exp(result.backend().left_data(), significand_.backend().data(), exponent_, MPFR_RNDD);
  mpfr_set_z_2exp(result.backend().right_data(), significand_.backend().data(), exponent_, MPFR_RNDU);
  return result;
}
template Interval<40> ExactValue::to() const;
template Interval<80> ExactValue::to() const;
template Interval<160> ExactValue::to() const;

// Loops without branches on local pointers, so that they vectorise: decoding must not cost more than the
// sums.
template <class Bits, class Significand>
void ExactVector::decode(std::vector<Significand>& significands) {
  using Signed = std::make_signed_t<Bits>;
  const Format format = format_of(dtype_);
  const int fraction_bits = format.precision - 1;
  const int all_ones = format.max_exponent - format.min_exponent + 2;  // exponent field of inf and NaN
  const Bits hidden_bit = static_cast<Bits>(Bits{1} << fraction_bits);
  constexpr int sign_shift = 8 * int{sizeof(Bits)} - 1;

  const auto count = static_cast<std::size_t>(size_);
  significands.resize(count);
  offsets_.resize(count);
  const std::byte* const source = static_cast<const std::byte*>(data_) + first_ * Index{sizeof(Bits)};
  Significand* const significand = significands.data();
  std::int32_t* const offset = offsets_.data();
  std::int32_t least = all_ones, most = 0, largest_field = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, source + i * sizeof(Bits), sizeof(Bits));
    const auto field = static_cast<std::int32_t>((bits >> fraction_bits) & static_cast<Bits>(all_ones));
    const auto fraction = static_cast<Significand>(bits & static_cast<Bits>(hidden_bit - 1));
    const std::int32_t normal = std::min(field, 1);
    const Significand magnitude =
        fraction + static_cast<Significand>(normal) * static_cast<Significand>(hidden_bit);
    const auto sign = static_cast<Significand>(static_cast<Signed>(bits) >> sign_shift);  // 0 or −1
    significand[i] = (magnitude ^ sign) - sign;
    offset[i] = field - normal;  // fields 0 (subnormal) and 1 have the same exponent
    const std::int32_t zero = magnitude == 0;
    least = std::min(least, offset[i] + zero * all_ones);
    most = std::max(most, offset[i]);
    largest_field = std::max(largest_field, field);
  }
  finite_ = largest_field < all_ones;
  least = std::min(least, most);  // when all elements are 0
  for (std::size_t i = 0; i < count; ++i) offset[i] = std::max(offset[i] - least, 0);  // zeros may be below
  lowest_ = format.min_exponent - fraction_bits + least;
  range_ = most - least;
}

void ExactVector::assign(DType dtype, const void* data, Index first, Index count) {
  dtype_ = dtype;
  data_ = data;
  first_ = first;
  size_ = count;
  switch (dtype) {
    case DType::bf16:
    case DType::f16: return decode<std::uint16_t>(narrow_);
    case DType::f32: return decode<std::uint32_t>(narrow_);
    case DType::f64: return decode<std::uint64_t>(wide_);
  }
}

namespace {

// Products that a bin can take: the magnitude of a product is below 2^(a.precision + b.precision), and this
// many stay below half of what a Bin can hold. That is 2^14 for two f32 in 64 bits and 2^20 for two f64 in
// 128; for the 16-bit formats more than any vector has.
template <class Bin>
Index bin_capacity(DType a, DType b) {
  const int value_bits = 8 * int{sizeof(Bin)} - 1;
  const int spare = value_bits - 1 - format_of(a).precision - format_of(b).precision;
  return Index{1} << std::min(spare, 40);
}

// Consecutive products often fall into the same bin, and each addition would wait for the one before it to
// reach memory. Several sets of bins, taken in turn, keep them apart.
constexpr int bin_sets = 4;

// Σ_{i < count} a_i·b_i·2^(offsets), with count ≤ bin_capacity.
template <class Bin, class A, class B>
Integer sum_products(const A* a, const std::int32_t* a_offset, const B* b, const std::int32_t* b_offset,
                     Index count, Index bin_count, std::vector<Bin>& bins) {
  bins.assign(static_cast<std::size_t>(bin_sets * bin_count), 0);
  Index i = 0;
  const auto add = [&](Bin* set, Index k) {
    set[a_offset[k] + b_offset[k]] += static_cast<Bin>(a[k]) * b[k];
  };
  Bin* const set0 = bins.data();
  Bin* const set1 = set0 + bin_count;
  Bin* const set2 = set1 + bin_count;
  Bin* const set3 = set2 + bin_count;
  for (; i + bin_sets <= count; i += bin_sets) {
    add(set0, i);
    add(set1, i + 1);
    add(set2, i + 2);
    add(set3, i + 3);
  }
  for (; i < count; ++i) add(set0, i);

  // Add the bins with carries, lowest first: each step settles one bit of the result and halves the rest,
  // rounding down, so the bits are those of a number to which the last carry adds carry · 2^(number of bits).
  // |carry| ≤ max |bin| < 2^126 throughout, and so their sum does not overflow.
  const Index limb_count = (bin_count + 63) / 64;
  std::vector<std::uint64_t> limbs(static_cast<std::size_t>(limb_count));
  Int128 carry = 0;
  for (Index k = 0; k < 64 * limb_count; ++k) {
    if (k < bin_count) carry += Int128{set0[k]} + set1[k] + set2[k] + set3[k];
    limbs[static_cast<std::size_t>(k / 64)] |= static_cast<std::uint64_t>(carry & 1) << (k % 64);
    carry >>= 1;
  }
  return assemble(carry, limbs);
}

template <class Bin, class A, class B>
Integer sum_all(const std::vector<A>& a, const std::vector<std::int32_t>& a_offset, const std::vector<B>& b,
                const std::vector<std::int32_t>& b_offset, Index bin_count, Index capacity) {
  std::vector<Bin> bins;
  Integer sum = 0;
  const Index size = static_cast<Index>(a_offset.size());
  for (Index first = 0; first < size; first += capacity) {
    sum += sum_products<Bin>(a.data() + first, a_offset.data() + first, b.data() + first,
                             b_offset.data() + first, std::min(capacity, size - first), bin_count, bins);
  }
  return sum;
}

}  // namespace

ExactValue exact_dot(const ExactVector& a, const ExactVector& b) {
  if (a.size_ != b.size_) {
    throw std::invalid_argument("a dot product was asked of vectors of " + std::to_string(a.size_) + " and " +
                                std::to_string(b.size_) + " elements, but the sizes must be equal.");
  }
  if (!a.finite_ || !b.finite_) {
    // The products that are not finite decide: their sum is the result, whatever the finite ones are.
    double sum = 0;
    for (Index i = 0; i < a.size_; ++i) {
      const double a_i = load(a.dtype_, a.data_, a.first_ + i), b_i = load(b.dtype_, b.data_, b.first_ + i);
      if (!std::isfinite(a_i) || !std::isfinite(b_i)) sum += a_i * b_i;
    }
    return ExactValue(sum);
  }
  const Index bin_count = Index{a.range_} + b.range_ + 1;
  const auto sum = [&] {
    const bool a_wide = a.dtype_ == DType::f64, b_wide = b.dtype_ == DType::f64;
    const Index capacity = bin_capacity<Int128>(a.dtype_, b.dtype_);
    if (a_wide && b_wide)
      return sum_all<Int128>(a.wide_, a.offsets_, b.wide_, b.offsets_, bin_count, capacity);
    if (a_wide) return sum_all<Int128>(a.wide_, a.offsets_, b.narrow_, b.offsets_, bin_count, capacity);
    if (b_wide) return sum_all<Int128>(a.narrow_, a.offsets_, b.wide_, b.offsets_, bin_count, capacity);
    return sum_all<std::int64_t>(a.narrow_, a.offsets_, b.narrow_, b.offsets_, bin_count,
                                 bin_capacity<std::int64_t>(a.dtype_, b.dtype_));
  };
  return ExactValue(sum(), a.lowest_ + b.lowest_);
}

ExactValue exact_dot(const VectorView& a, const VectorView& b) {
  return exact_dot(ExactVector(a), ExactVector(b));
}

}  // namespace fljsd
