// SPDX-License-Identifier: Apache-2.0
#include "verify/cases/portable_math.h"

#include <cfloat>
#include <cmath>

namespace fljsd {
namespace {

static_assert(FLT_EVAL_METHOD == 0, "intermediate results must be double, not wider");

// ln 2 = ln2_high + ln2_low; the high part ends in 21 zero bits, so that its product with an exponent (at
// most 11 bits) is exact.
constexpr double ln2_high = 0x1.62e42fee00000p-1;
constexpr double ln2_low = 0x1.a39ef35793c76p-33;

}  // namespace

// x = k ln 2 + r with |r| <= ln(2)/2 = 0.347; Taylor's series for e^r, whose first term left out is
// r^14/14! < 5e-18.
double portable_exp(double x) {
  const double k = std::floor(x * 0x1.71547652b82fep0 + 0.5);
  const double r = (x - k * ln2_high) - k * ln2_low;
  double sum = 1;
  for (int n = 13; n > 0; --n) sum = 1 + sum * r / n;
  return std::ldexp(sum, static_cast<int>(k));
}

// x = 2^k m with 1/sqrt(2) <= m < sqrt(2), and ln m = 2 atanh(s), s = (m − 1)/(m + 1), |s| < 0.1716; the
// first term of atanh(s)/s left out is s^24/25 < 2e-20.
double portable_log(double x) {
  int k;
  double m = std::frexp(x, &k);
  if (m < 0x1.6a09e667f3bcdp-1) {
    m *= 2;
    --k;
  }
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  double sum = 0;
  for (int n = 23; n > 1; n -= 2) sum = (sum + 1.0 / n) * square;
  return k * ln2_high + (k * ln2_low + (2 * s + 2 * s * sum));
}

}  // namespace fljsd
