// SPDX-License-Identifier: Apache-2.0
// Three functions that vanish to second order at 0, where their defining formulas cancel.
//
//   psi(d)       = d·e^d − expm1(d)           = d²/2 + d³/3 + ...     KL(p‖q) = Σ q·psi(log p − log q)
//   phi(z)       = (1 + z)·log1p(z) − z       = z²/2 − z³/6 + ...
//   log1p_gap(z) = z − log1p(z)               = z²/2 − z³/3 + ...     KL(q‖M) = Σ q·log1p_gap(M/q − 1)
//
// The templates use the defining formulas: 100 digits and intervals have digits to spare, and an interval's
// width tells how many were lost. The double overloads use series near 0 instead.
#pragma once

#include <cmath>
#include <limits>

#include "reference/real.h"

namespace fljsd {

template <class Real>
Real psi(const Real& d) {
  using std::exp, std::expm1;
  if (pivot(d) == -std::numeric_limits<double>::infinity()) return 1;  // 0·inf otherwise
  if (pivot(d) < -2) return 1 + (d - 1) * exp(d);  // below, d·e and d would cancel: all digits of d = −1e302
  const Real e = expm1(d);
  return d * e + (d - e);
}

template <class Real>
Real phi(const Real& z) {
  using std::log1p;
  return (1 + z) * log1p(z) - z;
}

template <class Real>
Real log1p_gap(const Real& z) {
  using std::log1p;
  return z - log1p(z);
}

// Relative error at most 8 u for finite d (u = 2^-53); psi(−inf) = 1.
inline double psi(double d) {
  if (std::abs(d) >= 0.5) {
    if (d < -745) return 1;                        // d·e^d is below the smallest double
    if (d < -2) return 1 + (d - 1) * std::exp(d);  // below, d·e and d would cancel
    const double e = std::expm1(d);
    return d * e + (d - e);
  }
  // Σ_{k≥2} (k−1)/k!·d^k. The first term left out is below 2^-60 of the first one kept.
  constexpr int last = 15;
  double sum = 0;
  double inverse_factorial = 1.0 / 1307674368000.0;  // 1/15!
  for (int k = last; k >= 2; --k) {
    sum = sum * d + (k - 1) * inverse_factorial;
    inverse_factorial *= k;
  }
  return sum * d * d;
}

// R(s) = atanh(s) − s for |s| ≤ 1/3, by its series s³/3 + s⁵/5 + ...
inline double atanh_gap(double s) {
  const double square = s * s;
  double sum = 0;
  for (int k = 35; k >= 3; k -= 2) sum = sum * square + 1.0 / k;
  return sum * square * s;
}

// With s = z/(2+z): log1p(z) = 2·atanh(s) and 1 + z = (1+s)/(1−s), hence phi = 2/(1−s)·(s² + (1+s)·R(s)), and
// R is third order. Relative error at most 16 u for z > −1.
inline double phi(double z) {
  if (std::abs(z) > 0.5) return (1 + z) * std::log1p(z) - z;
  const double s = z / (2 + z);
  return 2 / (1 - s) * (s * s + (1 + s) * atanh_gap(s));
}

// Likewise z − log1p(z) = 2·(s²/(1−s) − R(s)), with the same bound.
inline double log1p_gap(double z) {
  if (std::abs(z) > 0.5) return z - std::log1p(z);
  const double s = z / (2 + z);
  return 2 * (s * s / (1 - s) - atanh_gap(s));
}

}  // namespace fljsd
