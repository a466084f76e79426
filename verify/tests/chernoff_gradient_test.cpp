// SPDX-License-Identifier: Apache-2.0
// The second sweep: gradients from the row's constants, and the certificate that says when a constant was not
// good enough.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "reference/chernoff.h"
#include "verify/tests/chernoff_rows.h"

namespace fljsd {
namespace {

using namespace chernoff_tests;

constexpr double u = 0x1p-24;

struct Gradient {
  OnePassRow row;
  OnePassCertificate certificate;
  std::vector<float> values;
};
Gradient gradient_of(const RowPair& pair, const OnePassPlan& plan, bool repeat = false) {
  Gradient result{one_pass_row(pair.x, pair.y, plan), {}, std::vector<float>(pair.x.size())};
  const auto sweep = [&] {
    result.certificate = one_pass_gradient(pair.x, pair.y, result.row, plan, result.values);
  };
  sweep();
  if (repeat) {
    result.row = with_swept_constant(result.row, result.certificate, plan);
    sweep();
  }
  return result;
}

struct Exact {
  double kl;
  std::vector<LogRatio<double>> entries;
  std::vector<double> gradient;
};
Exact exact_gradient(const RowPair& pair, double beta) {
  std::vector<double> larger = pair.x64(), d = pair.y64();
  normalise<double>(larger, d);
  Exact exact{student_kl<double>(larger, d, beta), {}, {}};
  for (std::size_t v = 0; v < d.size(); ++v) {
    exact.entries.push_back({larger[v], d[v]});
    exact.gradient.push_back(gradient_term<double>(exact.entries.back(), beta, exact.kl));
  }
  return exact;
}

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}
double relative_error(const Gradient& gradient, const Exact& exact) {
  std::vector<double> difference;
  for (std::size_t v = 0; v < exact.gradient.size(); ++v) {
    difference.push_back(gradient.values[v] - exact.gradient[v]);
  }
  return norm(difference) / norm(exact.gradient);
}

// What float32 may add to q_v·(constant − term_v), given the error of the row's constant and normalisers:
//   q_v        3u·|x_v − max| for the exponent, 2u exp2, u the scale, u a product, and the error of Sx
//   term_v     d_v to 4u|d_v| and the errors of both normalisers; then at most 8 roundings of numbers of size
//   1 + |term_v| constant   its own error, one rounding, one subtraction
// In the difference form both sides are moved by ln(1−beta); the sum over the three constants covers it.
double allowed(const Exact& exact, std::size_t v, const RowPair& pair, double beta, double constant_error,
               double log_sum_error) {
  const LogRatio<double>& entry = exact.entries[v];
  const double q = entry.q(), factor = beta == 1 ? 1 : 1 - beta;
  if (q == 0) return 0x1p-126;
  const double depth = *std::max_element(pair.x.begin(), pair.x.end()) - static_cast<double>(pair.x[v]);
  const double d = std::abs(entry.d), term = std::abs(log_q_over_m(entry, beta));
  const double relative_q = (3 * depth + 5) * u + log_sum_error;
  const double sizes = 1 + term + std::abs(exact.kl) + (beta == 1 ? 0 : std::abs(logit(beta)));
  const double value_error =
      constant_error / factor + (std::isinf(d) ? 0 : 4 * u * d) + 2 * log_sum_error + 8 * u * sizes;
  return 1.01 * (std::abs(exact.gradient[v]) * relative_q + factor * q * value_error) + 0x1p-126;
}

// Catches: a gradient that uses the wrong constant, the wrong sign of s, p for q, or a form that loses its
// digits on some kind of row (overflow of e^s, cancellation at p = q, offsets of 1e4, excluded tokens).
TEST(ChernoffGradient, EveryFamilyIsWithinItsBound) {
  constexpr Index vocab = 600;
  for (const double beta : {1e-3, 0.1, 0.5, 0.9, 0.999}) {
    const OnePassPlan plan({.beta = beta});
    const OnePassErrorBound bound = one_pass_error_bound(plan, vocab);
    for (const RowPair& pair : all_families(vocab, 31)) {
      const Exact exact = exact_gradient(pair, beta);
      const Gradient once = gradient_of(pair, plan);
      // The swept constant errs as the sum of its terms does.
      const Gradient repeated = gradient_of(pair, plan, true);
      double swept_error = 0;
      for (std::size_t v = 0; v < exact.gradient.size(); ++v) {
        const double term = std::abs(log_q_over_m(exact.entries[v], beta)) + std::abs(std::log1p(-beta));
        const double q = exact.entries[v].q();
        if (q == 0) continue;
        swept_error +=
            (1 - beta) * term * q *
            ((3 * (*std::max_element(pair.x.begin(), pair.x.end()) - static_cast<double>(pair.x[v])) + 5) *
                 u +
             bound.log_sum);
        swept_error += allowed(exact, v, pair, beta, 0, bound.log_sum);
      }
      for (std::size_t v = 0; v < exact.gradient.size(); ++v) {
        EXPECT_LE(std::abs(once.values[v] - exact.gradient[v]),
                  allowed(exact, v, pair, beta, bound.scaled_student_kl, bound.log_sum))
            << pair.family << " beta " << beta << " v " << v;
        EXPECT_LE(std::abs(repeated.values[v] - exact.gradient[v]),
                  allowed(exact, v, pair, beta, swept_error, bound.log_sum))
            << pair.family << " beta " << beta << " v " << v << " repeated";
      }
    }
  }
}

// Catches: a certificate that lets a saturated row pass, or cries wolf where the constant is good. On
// saturated rows kappa is of the size of the rule's error, so that the gradient of the first sweep is
// worthless; with the swept constant it is as good as float32 logits allow.
TEST(ChernoffGradient, CertificateFindsTheRowsThatMissed) {
  for (const double beta : {0.1, 0.5, 0.9}) {
    const OnePassPlan plan({.beta = beta});
    for (const RowPair& pair : all_families(4096, 32)) {
      const Gradient once = gradient_of(pair, plan);
      if (pair.family == "equal") {
        EXPECT_FALSE(once.certificate.missed);
      }
      if (pair.family == "kaiming-like" || pair.family == "offsets" || pair.family == "two levels" ||
          pair.family == "excluded tokens") {
        EXPECT_FALSE(once.certificate.missed) << pair.family << " beta " << beta;
      }
    }
    // kappa is between 1e-7 and 1e-6 here: below the largest error of the rule.
    const Random a(3, 0), b(3, 1);
    const RowPair pair = make_pair(
        "saturated", 4096, [&](Index v) { return 1024 + 14 * a.deviate(v); },
        [&](Index v) { return 1024 + 14 * b.deviate(v); });
    const Exact exact = exact_gradient(pair, beta);
    const Gradient once = gradient_of(pair, plan), repeated = gradient_of(pair, plan, true);
    EXPECT_TRUE(once.certificate.missed) << "beta " << beta;
    EXPECT_GT(relative_error(once, exact), 1e-3);
    EXPECT_FALSE(repeated.certificate.missed);
    // Relative errors: q, 3u of a depth up to 75 in its exponent and that of Sx; e^{s_v}, 4u|d_v| with |d_v|
    // up to 140 and both normalisers; 12 more roundings. Twice, because kappa and ln(1+e^s) are two terms of
    // the gradient's size.
    const double log_sum = one_pass_error_bound(plan, 4096).log_sum;
    EXPECT_LE(relative_error(repeated, exact), 2 * ((3 * 75 + 4 * 140 + 12) * u + 3 * log_sum));
  }
}

// Catches: a tolerance that is not what it says. A row that passes at tolerance t has, by the certificate's
// argument, a gradient whose error from the constant is at most t in the 1-norm. float32 adds its share to
// the entries, and the same again to the swept constant that the row's was compared with.
TEST(ChernoffGradient, RowsThatPassAreAsGoodAsTheTolerance) {
  for (const double tolerance : {1e-2, 1e-3}) {
    const OnePassPlan plan({.beta = 0.3});
    const double log_sum = one_pass_error_bound(plan, 2000).log_sum;
    for (const RowPair& pair : all_families(2000, 33)) {
      const OnePassRow row = one_pass_row(pair.x, pair.y, plan);
      std::vector<float> values(pair.x.size());
      const OnePassCertificate certificate = one_pass_gradient(pair.x, pair.y, row, plan, values, tolerance);
      if (certificate.missed) continue;
      const Exact exact = exact_gradient(pair, 0.3);
      double error = 0, size = 0, float32 = 0;
      for (std::size_t v = 0; v < values.size(); ++v) {
        error += std::abs(values[v] - exact.gradient[v]);
        size += std::abs(exact.gradient[v]);
        float32 += allowed(exact, v, pair, 0.3, 0, log_sum);
      }
      EXPECT_LE(error, (1 + 2 * tolerance) * (tolerance * size + 2 * float32) + 1e-15) << pair.family;
    }
  }
}

// Catches: cancellation between nearly equal rows. With a gap g between the logits the gradient is about q·g,
// and the error must be relative to it. That of q: 3u of a depth up to 20 in its exponent, and that of Sx.
// That of the difference: a dozen roundings of numbers of size g. (An error of the normalisers shifts all d_v
// alike; the swept constant takes it up.)
TEST(ChernoffGradient, NearlyEqualRowsKeepTheirGradient) {
  for (const double gap : {1e-1, 1e-2, 1e-3, 1e-4, 1e-5}) {
    const Random a(5, 0), b(5, 1);
    const RowPair pair = make_pair(
        "near", 5000, [&](Index v) { return 2 * a.deviate(v); },
        [&](Index v) { return static_cast<float>(2 * a.deviate(v)) + gap * b.deviate(v); });
    for (const double beta : {0.1, 0.5, 0.9}) {
      const OnePassPlan plan({.beta = beta});
      const double log_sum = one_pass_error_bound(plan, 5000).log_sum;
      EXPECT_LE(relative_error(gradient_of(pair, plan, true), exact_gradient(pair, beta)),
                1.01 * ((3 * 20 + 12) * u + log_sum))
          << gap << " " << beta;
    }
  }
}

// Catches: the endpoints' gradients exchanged, and q − p formed by subtraction where the two are close.
TEST(ChernoffGradient, Endpoints) {
  constexpr Index vocab = 600;
  for (const double beta : {0.0, 1.0}) {
    const OnePassPlan plan({.beta = beta});
    for (const RowPair& pair : all_families(vocab, 34)) {
      const Truth finite = truth<double>(pair.x64(), pair.y64(), beta);
      if (!std::isfinite(finite.divergence)) continue;  // its gradient is not defined
      const Exact exact = exact_gradient(pair, beta);
      double gap = 0;
      for (const float y : pair.y) {
        if (y > -infinity)
          gap = std::max(gap, *std::max_element(pair.y.begin(), pair.y.end()) - static_cast<double>(y));
      }
      const OnePassErrorBound bound = one_pass_error_bound(plan, vocab, gap);
      const Gradient gradient = gradient_of(pair, plan);
      for (std::size_t v = 0; v < exact.gradient.size(); ++v) {
        const LogRatio<double>& entry = exact.entries[v];
        double limit;
        if (beta == 1) {
          limit = allowed(exact, v, pair, 1, bound.divergence, bound.log_sum);
        } else {
          // q − p: the relative error of q or p, whose exponents err by 3u of the depth, and that of d
          const double depth_x =
              *std::max_element(pair.x.begin(), pair.x.end()) - static_cast<double>(pair.x[v]);
          const double depth_y =
              *std::max_element(pair.y.begin(), pair.y.end()) - static_cast<double>(pair.y[v]);
          const double q = entry.q(), p = entry.p(), d = std::abs(entry.d);
          limit = 1.01 * ((q > 0 ? q * ((3 * depth_x + 8) * u + bound.log_sum) : 0) +
                          (p > 0 ? p * ((3 * depth_y + 8) * u + bound.log_sum) : 0) +
                          (std::isfinite(d) ? std::min(p, q) * (4 * u * d + 2 * bound.log_sum) : 0)) +
                  0x1p-126;
        }
        EXPECT_LE(std::abs(gradient.values[v] - exact.gradient[v]), limit)
            << pair.family << " beta " << beta << " v " << v;
      }
    }
  }
}

// Catches: a NaN row that leaves old numbers in its gradient, and a mismatch of sizes that is read past the
// end.
TEST(ChernoffGradient, RowsWithoutDistributionAreNaN) {
  const OnePassPlan plan({});
  const std::vector<float> x = {0, std::numeric_limits<float>::quiet_NaN()}, y = {0, 1};
  std::vector<float> values = {5, 5};
  const OnePassCertificate certificate = one_pass_gradient(x, y, one_pass_row(x, y, plan), plan, values);
  EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[1]));
  EXPECT_TRUE(certificate.missed);
  EXPECT_THROW(one_pass_gradient(x, y, one_pass_row(x, y, plan), plan, std::span(values).first(1)),
               std::invalid_argument);
}

}  // namespace
}  // namespace fljsd
