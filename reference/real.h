// SPDX-License-Identifier: Apache-2.0
// The number types that the reference is evaluated in, and the few operations that must know which one it is.
//
//   double          the everyday tier
//   Real100         100 decimal digits (MPFR): finite differences and tests
//   Interval<N>     N-digit intervals with outward rounding (MPFI): every result encloses the true value
//
// Code templated over Real branches on pivot(x), a double near x, because comparing intervals is ambiguous. A
// branch may therefore only choose between formulas that are both right at x.
#pragma once

#include <cmath>

#include <boost/multiprecision/mpfi.hpp>
#include <boost/multiprecision/mpfr.hpp>

namespace fljsd {

using Real100 = boost::multiprecision::number<
    boost::multiprecision::mpfr_float_backend<100, boost::multiprecision::allocate_stack>,
    boost::multiprecision::et_off>;

template <unsigned Digits>
using Interval = boost::multiprecision::number<boost::multiprecision::mpfi_float_backend<Digits>,
                                               boost::multiprecision::et_off>;

inline double pivot(double x) {
  return x;
}
inline double pivot(const Real100& x) {
  return mpfr_get_d(x.backend().data(), MPFR_RNDN);
}
template <unsigned Digits>
double pivot(const Interval<Digits>& x) {
  return mpfi_get_d(x.backend().data());
}

// A sum whose rounding error does not grow with the number of terms. For double it is Neumaier's compensated
// sum: |error| <= u |sum| + O(n u^2) sum |terms| (Higham, Accuracy and Stability of Numerical
// Algorithms, 4.3). The other types have digits to spare.
template <class Real>
class Sum {
 public:
  void add(const Real& term) { sum_ += term; }
  Real value() const { return sum_; }

 private:
  Real sum_ = 0;
};

template <>
class Sum<double> {
 public:
  void add(double term) {
    const double next = sum_ + term;
    // An infinite or NaN sum is its own answer: the compensation would turn infinity into NaN.
    if (std::isfinite(next)) {
      lost_ += std::abs(sum_) >= std::abs(term) ? (sum_ - next) + term : (term - next) + sum_;
    }
    sum_ = next;
  }
  double value() const { return sum_ + lost_; }

 private:
  double sum_ = 0;
  double lost_ = 0;
};

}  // namespace fljsd
