// SPDX-License-Identifier: Apache-2.0
// Dot products without any rounding, of vectors in any of the four formats, mixed as one likes.
//
// A finite element is an integer significand times a power of two, and so is a product of two elements. The
// products are sorted by exponent: one integer accumulator ("bin") for each exponent, in which they add
// exactly and in any order. At the end the bins are added up with carries into one big integer.
#pragma once

#include <cstdint>
#include <vector>

#include <boost/multiprecision/gmp.hpp>

#include "reference/problem.h"
#include "reference/real.h"

namespace fljsd {

// The number significand · 2^exponent, exactly, or one of NaN, +inf, −inf. Sums and differences are exact,
// and follow IEEE 754 for the special values (inf − inf = NaN, and NaN equals nothing). Zero has no sign.
class ExactValue {
 public:
  using Integer =
      boost::multiprecision::number<boost::multiprecision::gmp_int, boost::multiprecision::et_off>;

  ExactValue() = default;  // 0
  explicit ExactValue(double x);
  ExactValue(const Integer& significand, Index exponent);

  bool is_finite() const { return special_ == 0; }

  // Rounded once: to nearest, ties to even, for double (overflow gives ±inf) and Real100; outward for
  // Interval<40>, <80> and <160>.
  template <class Real>
  Real to() const;

  friend ExactValue operator+(const ExactValue& a, const ExactValue& b);
  friend ExactValue operator-(const ExactValue& a, const ExactValue& b);
  friend bool operator==(const ExactValue& a, const ExactValue& b);

 private:
  Integer significand_;  // odd, or 0: each number has one representation
  Index exponent_ = 0;   // 0 when the significand is 0
  double special_ = 0;   // NaN or ±inf, else 0
};

// A vector taken apart into significands and exponents, once for all the products it takes part in.
class ExactVector {
 public:
  ExactVector() = default;
  explicit ExactVector(const VectorView& v) { assign(v.dtype, v.data, 0, v.size); }

  // Elements [first, first + count) of packed data, which must stay readable while the vector is in use.
  // Memory is kept from call to call.
  void assign(DType dtype, const void* data, Index first, Index count);
  // Row r of a matrix.
  void assign_row(const MatrixView& m, Index r) { assign(m.dtype, m.data, r * m.row_stride, m.cols); }

  Index size() const { return size_; }

  // Σ a_i·b_i. Sizes must be equal; otherwise std::invalid_argument.
  friend ExactValue exact_dot(const ExactVector& a, const ExactVector& b);

 private:
  template <class Bits, class Significand>
  void decode(std::vector<Significand>& significands);

  DType dtype_ = DType::f64;
  const void* data_ = nullptr;
  Index first_ = 0, size_ = 0;
  bool finite_ = true;
  // Element i is significand_i · 2^(lowest_ + offsets_[i]), when all elements are finite.
  std::vector<std::int32_t> narrow_;  // significands of bf16, f16, f32 ...
  std::vector<std::int64_t> wide_;    // ... and of f64
  std::vector<std::int32_t> offsets_;
  Index lowest_ = 0;        // least exponent of a nonzero element
  std::int32_t range_ = 0;  // largest offset
};

ExactValue exact_dot(const ExactVector& a, const ExactVector& b);
ExactValue exact_dot(const VectorView& a, const VectorView& b);

}  // namespace fljsd
