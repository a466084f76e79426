// SPDX-License-Identifier: Apache-2.0
// From totals of moments to the values of a record, all at once as a warp takes them (one_pass_values.cuh)
// and one at a time (Moments::value): both against the values' definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstdlib>

#include "verify/tests/device_rows.h"

namespace fljsd::testing {
namespace {

// Angles of which 5·cosine and 5·sine are integers.
using Whole = std::complex<int>;
constexpr int angles[12][2] = {{5, 0},  {0, 5},   {-5, 0}, {0, -5}, {3, 4},  {-3, 4},
                               {3, -4}, {-3, -4}, {4, 3},  {-4, 3}, {4, -3}, {-4, -3}};

Whole power(Whole base, int exponent) {
  Whole result = 1;
  for (int i = 0; i < exponent; ++i) result *= base;
  return result;
}
int power(int base, int exponent) {
  return power(Whole(base), exponent).real();
}

// One entry of modulus 5^degree with angles θ and φ: the steps never ask for φ = 5θ. The degree is that of
// the basis, 2 in θ and 2 or 4 in φ, so that all totals are integers, and so is everything that the steps
// form: below 2^24, so exact.
template <class M>
void expect_definition(const int (&theta)[2], const int (&phi)[2]) {
  constexpr int most = M::rows == 9 ? 4 : 2;
  // 5^n times {1, c, s, c², cs, c³, c²s, c⁴, c³s}.
  const auto functions = [](const int(&angle)[2], int n, int j) {
    const int degree = (j + 1) / 2;
    return power(5, n - degree) * power(angle[0], j % 2 == 1 ? degree : std::max(degree - 1, 0)) *
           (j % 2 == 0 && j > 0 ? angle[1] : 1);
  };
  float m[M::count];
  for (int j = 0; j < M::rows; ++j) {
    for (int l = 0; l < 5; ++l)
      m[5 * j + l] = static_cast<float>(functions(phi, most, j) * functions(theta, 2, l));
  }
  m[M::count - 2] = 7, m[M::count - 1] = 11;
  float totals[M::count];
  std::copy_n(m, M::count, totals);
  take_value_steps<M>(m);
  for (int k = 0; k <= M::last; ++k) {
    const int j = (k + 2) / 5, l = k - 5 * j;
    const Whole turn(theta[0], l < 0 ? -theta[1] : theta[1]);
    const Whole value = power(5, most - j) * power(5, 2 - std::abs(l)) *
                        (power(Whole(phi[0], phi[1]), j) * power(turn, std::abs(l)));
    EXPECT_EQ(m[k == 0 ? 0 : 2 * k - 1], static_cast<float>(value.real())) << "k " << k;
    if (k == 0) continue;
    EXPECT_EQ(m[2 * k], static_cast<float>(value.imag())) << "k " << k;
  }
  for (int i = 0; i < M::values; ++i) EXPECT_EQ(M::value(totals, i), m[i]) << "value " << i;
  EXPECT_EQ(m[M::count - 2], 7);
  EXPECT_EQ(m[M::count - 1], 11);
}

// Catches a wrong harmonic, index or sign in either. The steps are linear: entries of all angles stand for
// any sum.
TEST(OnePassValues, AreSumsOfTurnedModuli) {
  for (const auto& theta : angles) {
    for (const auto& phi : angles) {
      expect_definition<cu::Moments<cu::Basis::twelve>>(theta, phi);
      expect_definition<cu::Moments<cu::Basis::twenty_two>>(theta, phi);
    }
  }
}

}  // namespace
}  // namespace fljsd::testing
