// SPDX-License-Identifier: Apache-2.0
// The one-pass identity itself, at 100 digits, and the functions it is made of.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "reference/chernoff/integrand.h"
#include "reference/real.h"
#include "verify/tests/chernoff_rows.h"

namespace fljsd {
namespace {

using namespace chernoff_tests;

// A trapezoid rule fine enough for 40 digits. Its error is aliasing, below 4·(L+1)·e^{−(L−|s|)/2} in the
// kernel, plus what is cut off, below 8·e^{−πKh}: with L = 260, K·h = 36 and |s| <= 30, together below 1e-45.
struct FineRule {
  double period = 260;
  int last_frequency = 1490;
  Real100 step = 2 * pi_of<Real100>() / Real100(period);

  Real100 frequency(int k) const { return k * step; }
  Real100 weight(int k) const {
    return (k == 0 ? step / 2 : step) * transform_density(frequency(k), pi_of<Real100>());
  }
};
constexpr double fine_error = 1e-40;

double distance(const Real100& a, const Real100& b) {
  return pivot(Real100(abs(a - b)));
}

// Catches: a wrong transform of W or U (a lost factor, 1/2 + iw for 1/2 − iw, a missing half at w = 0).
TEST(ChernoffIdentity, TransformsGiveTheKernels) {
  const FineRule rule;
  for (const double at : {-30.0, -3.25, 0.0, 0.5, 7.0}) {
    const Real100 s = at;
    Real100 divergence = 0, student = 0;
    for (int k = 0; k <= rule.last_frequency; ++k) {
      const Real100 w = rule.frequency(k), c = cos(w * s), weight = rule.weight(k);
      divergence += weight * c;
      student += weight * (c / 2 + w * sin(w * s));  // Re[(1/2 − iw)·e^{iws}]
    }
    EXPECT_LE(distance(divergence, divergence_kernel(s)), fine_error) << "s = " << at;
    EXPECT_LE(distance(student, student_kernel(s)), fine_error) << "s = " << at;
  }
}

// Catches: a kernel that is not what the derivation of the transform assumes. W'' − W/4 = −sech(s/2)/2 and
// U' + U/2 = sech(s/2)/2; central differences of step 1e-20 err by 1e-40 times a higher derivative (below 10)
// and lose 40 of 100 digits.
TEST(ChernoffIdentity, KernelsObeyTheirDifferentialEquations) {
  const Real100 step("1e-20");
  for (const double at : {-20.0, -1.5, 0.0, 0.25, 4.0, 33.0}) {
    const Real100 s = at, before = s - step, after = s + step;
    const Real100 half_sech = 1 / (2 * cosh(s / 2));
    const Real100 second =
        (divergence_kernel(after) - 2 * divergence_kernel(s) + divergence_kernel(before)) / (step * step);
    EXPECT_LE(distance(second - divergence_kernel(s) / 4, -half_sech), 1e-38) << "s = " << at;
    const Real100 first = (student_kernel(after) - student_kernel(before)) / (2 * step);
    EXPECT_LE(distance(first + student_kernel(s) / 2, half_sech), 1e-38) << "s = " << at;
  }
}

// Catches: overflow or cancellation in the double kernels far out, and a weighted kernel that is not weight ×
// kernel. Each is a product of at most five functions, each right to 2 u or so.
TEST(ChernoffIdentity, DoubleKernelsAreAccurate) {
  constexpr double u = 0x1p-53;
  for (double s = -700; s <= 700; s += 0.37) {
    const Real100 wide = s;
    const auto close = [&](double value, const Real100& exact) {
      EXPECT_LE(distance(value, exact), (16 + std::abs(s)) * u * pivot(exact)) << "s = " << s;
    };
    close(student_kernel(s), student_kernel(wide));
    close(divergence_kernel(s), divergence_kernel(wide));
    close(mixture_weight(s), 1 / (2 * cosh(wide / 2)));
    close(sigmoid(s), 1 / (1 + exp(-wide)));
    close(weighted_student_kernel(s), student_kernel(wide) / (2 * cosh(wide / 2)));
    close(weighted_divergence_kernel(s), divergence_kernel(wide) / (2 * cosh(wide / 2)));
  }
}

// Catches: any error of the identity or of the state in exact arithmetic: a wrong sign of a phase or of c, p
// and q exchanged, a shift of the wrong log-sum-exp, an excluded token that leaks into Φ.
TEST(ChernoffIdentity, HoldsTo40DigitsOfTheSpecification) {
  const FineRule rule;
  const std::vector<std::vector<double>> xs = {{0.5, -1, 3}, {0, -infinity, 1, 2}, {1000, 1001.5, 990}};
  const std::vector<std::vector<double>> ys = {{-2, 0.25, 1}, {1, 2, -infinity, 0}, {-7, -7.5, -3}};
  for (std::size_t row = 0; row < xs.size(); ++row) {
    const auto sums = swept<Real100>(xs[row], ys[row], rule.last_frequency, rule.period).sums();
    const Real100 size = sqrt(sums.sum_x * sums.sum_y);
    for (const double beta_double : {0.5, 0.1, 0.999}) {
      const Real100 beta = beta_double, rest = 1 - beta;
      const Real100 tau = (sums.phase_y - sums.phase_x) - (sums.max_y - sums.max_x) +
                          log(sums.sum_x / sums.sum_y) + log(beta / rest);
      Real100 divergence = 0, student = 0, teacher = 0;
      for (int k = 0; k <= rule.last_frequency; ++k) {
        const auto i = static_cast<std::size_t>(k);
        const Real100 w = rule.frequency(k), c = cos(w * tau), s = sin(w * tau), weight = rule.weight(k);
        const Real100 re = sums.real[i] * c - sums.imag[i] * s, im = sums.real[i] * s + sums.imag[i] * c;
        divergence += weight * re;
        student += weight * (re / 2 + w * im);
        teacher += weight * (re / 2 - w * im);
      }
      const Real100 root = sqrt(beta * rest);
      std::vector<Real100> larger(xs[row].begin(), xs[row].end()), d(ys[row].begin(), ys[row].end());
      ASSERT_TRUE(normalise<Real100>(larger, d));
      const Real100 entropy = -beta * log(beta) - rest * log(rest);
      const Real100 exact_kl = student_kl<Real100>(larger, d, beta);
      const Real100 exact_divergence = fljsd::divergence<Real100>(larger, d, beta);
      EXPECT_LE(distance(entropy - root * divergence / size, exact_divergence), fine_error);
      EXPECT_LE(distance(-log(rest) - root / rest * student / size, exact_kl), fine_error);
      // beta·KL(p‖M) is what is left of D
      EXPECT_LE(distance(-beta * log(beta) - root * teacher / size, exact_divergence - rest * exact_kl),
                fine_error);
    }
  }
}

}  // namespace
}  // namespace fljsd
