// SPDX-License-Identifier: Apache-2.0
// The spec on single rows of logits: double against 100 digits within the bounds of row_bounds.h, and 100
// digits against the definition.
#include "reference/divergence.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "reference/largest.h"
#include "verify/tests/definition.h"
#include "verify/tests/row_bounds.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
using row_bounds::loss_bound, row_bounds::range, row_bounds::sensitivity, row_bounds::u;

using Row = std::vector<double>;

template <class Real>
struct Outcome {
  bool exists = false;
  Real loss = 0, kl = 0;
  std::vector<Real> gradient, log_larger, d;
};

template <class Real>
Outcome<Real> evaluate(const Row& x, const Row& y, double beta) {
  Outcome<Real> out;
  std::vector<Real> a(x.begin(), x.end()), b(y.begin(), y.end());
  out.exists = normalise(std::span<Real>(a), std::span<Real>(b));
  if (!out.exists) return out;
  out.loss = divergence(std::span<const Real>(a), std::span<const Real>(b), Real(beta));
  if (beta != 0) out.kl = student_kl(std::span<const Real>(a), std::span<const Real>(b), Real(beta));
  for (std::size_t v = 0; v < a.size(); ++v)
    out.gradient.push_back(gradient_term(LogRatio<Real>{a[v], b[v]}, Real(beta), out.kl));
  out.log_larger = a;
  out.d = b;
  return out;
}

double error(double actual, const Real100& truth) {
  return std::abs(pivot(Real100(actual - truth)));
}

// Bound on the error of a value of at most 1e5 nats in 100 digits: the definition sums at most 300 terms of
// that size, and the spec's formulas keep 90 digits of their smallest results here.
Real100 slack(const Real100& truth) {
  return 1e-90 + 1e-80 * abs(truth);
}

const double betas[] = {0, 0.1, 0.5, 0.9, 1};

// Any row: 2 to 40 entries, of a spread from 1e-3 to 200 nats, at offsets up to 1e4, the two close or not,
// with some entries impossible under one or both models.
struct Rows {
  Row x, y;
};
Rows random_rows(std::uint64_t seed, bool with_zeros) {
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53 - 0.5; };
  const std::size_t size = 2 + random() % 39;
  const double spreads[] = {1e-3, 1, 10, 200}, gaps[] = {1e-6, 1e-2, 1, 100}, offsets[] = {0, 30, 1e4};
  const double spread = spreads[random() % 4], gap = gaps[random() % 4];
  const double x_offset = offsets[random() % 3], y_offset = offsets[random() % 3];
  Rows rows;
  for (std::size_t v = 0; v < size; ++v) {
    const double logit = spread * uniform();
    rows.x.push_back(x_offset + logit);
    rows.y.push_back(y_offset + logit + gap * uniform());
    if (with_zeros && v > 0) {
      if (random() % 4 == 0) rows.x.back() = -infinity;
      if (random() % 4 == 0) rows.y.back() = -infinity;
    }
  }
  return rows;
}

// Catches: differences of logits across the models, in which a model whose logits lie far apart swallows the
// other's logits: beside a teacher near 1e38, q of the teacher's top entry was off by a third.
TEST(Divergence, FarLogitsOfOneModelLeaveTheOthersProbabilitiesAlone) {
  const Row near = {0.75, -0.5, 0.25, 1.5}, direction = {-0.5, -0.125, -1, -0.125};
  const auto truth = definition::softmax(definition::widen(near));
  // row_bounds.h, with R and V of the near row: its log-probability is off by u·(4R + 4·log V + 4). At the
  // far model's top entries it is the smaller one, formed from log p = −log 2 or 0 and d, whose error is u·(R
  // + 2|d|), |d| <= R + log V, and that of both log-sums.
  const double allowed = u * (8 * range(near) + 8 * std::log(4.0) + 16);
  for (const double size : {1e3, 1e17, 1e30, 1e38, -1e38, 1e300}) {
    Row far;
    for (double part : direction) far.push_back(size * part);
    for (const bool teacher_is_far : {true, false}) {
      const Outcome<double> out =
          teacher_is_far ? evaluate<double>(near, far, 0.5) : evaluate<double>(far, near, 0.5);
      ASSERT_TRUE(out.exists);
      for (std::size_t v = 0; v < near.size(); ++v) {
        const LogRatio<double> entry{out.log_larger[v], out.d[v]};
        const double got = teacher_is_far ? entry.q() : entry.p();
        EXPECT_TRUE(error(got, truth[v]) <= allowed * pivot(truth[v]))
            << size << ' ' << teacher_is_far << ' ' << v;
      }
    }
  }
}

// Catches: any formula of the spec that is not the definition, in any branch.
RC_GTEST_PROP(Divergence, IsTheDefinition, (std::uint64_t seed, bool with_zeros)) {
  const Rows rows = random_rows(seed, with_zeros);
  for (double beta : betas) {
    const Real100 expected =
        definition::divergence(definition::widen(rows.x), definition::widen(rows.y), beta);
    const Outcome<Real100> actual = evaluate<Real100>(rows.x, rows.y, beta);
    RC_ASSERT(actual.exists);
    if (std::isinf(pivot(expected))) {
      RC_ASSERT(pivot(actual.loss) == infinity);
    } else {
      RC_ASSERT(abs(Real100(actual.loss - expected)) <= slack(expected));
    }
    if (beta == 0) continue;
    const auto q = definition::softmax(definition::widen(rows.x)),
               p = definition::softmax(definition::widen(rows.y));
    const Real100 kl = definition::kl(q, definition::mixture(p, q, beta));
    if (std::isinf(pivot(kl))) {
      RC_ASSERT(pivot(actual.kl) == infinity);
    } else {
      RC_ASSERT(abs(Real100(actual.kl - kl)) <= slack(kl));
    }
  }
}

// Catches: a float64 formula that cancels, overflows or underflows where the 100-digit one does not.
RC_GTEST_PROP(Divergence, DoubleIsWithinItsBound, (std::uint64_t seed, bool with_zeros)) {
  const Rows rows = random_rows(seed, with_zeros);
  for (double beta : betas) {
    const Outcome<Real100> truth = evaluate<Real100>(rows.x, rows.y, beta);
    const Outcome<double> actual = evaluate<double>(rows.x, rows.y, beta);
    const double loss = pivot(truth.loss);
    if (std::isinf(loss)) {
      RC_ASSERT(actual.loss == infinity);
      continue;  // gradients are not defined then
    }
    RC_ASSERT(error(actual.loss, truth.loss) <= loss_bound(rows.x, rows.y, beta, loss));

    const std::vector<double> bounds = row_bounds::gradient_bounds(rows.x, rows.y, beta);
    double sum = 0, sum_bound = 0;
    for (std::size_t v = 0; v < rows.x.size(); ++v) {
      RC_ASSERT(error(actual.gradient[v], truth.gradient[v]) <= bounds[v]);
      sum += actual.gradient[v];
      sum_bound += bounds[v] + u * std::abs(sum);
    }
    RC_ASSERT(std::abs(sum) <= sum_bound);  // moving all logits together changes nothing
  }
}

// Catches: near p = q, a difference of nearly equal numbers: probabilities, log-sum-exps near 1e4, the two
// KLs.
//
// Here y − x is exact (Sterbenz), and the rows are close, so d is computed from g_v = (y_v − x_v) − r, |g_v|
// ≤ G. The shift is log1p Σ q·expm1(g): relative errors of q (eps_q = u·(4R + 4·log V + 4)) and 8u for the
// rest, on a sum of magnitudes ≤ 2G. So d is within eps_d = G·(2·eps_q + 20u), relative to the gap and not to
// the logits.
TEST(Divergence, KeepsRelativeAccuracyNearEquality) {
  std::mt19937_64 random(7);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53 - 0.5; };
  for (int digits = 1; digits <= 12; ++digits) {
    // Logits near 1e4 are multiples of 2^-39 = 1.8e-12; smaller gaps are whole steps of that grid.
    const double gap = std::pow(10.0, -digits);
    for (double offset : {0.0, 1e4}) {
      Row x, y;
      double largest = 0;
      for (int v = 0; v < 300; ++v) {
        x.push_back(offset + 10 * uniform());
        const double step =
            offset == 0 ? gap * uniform() : 0x1p-39 * std::round(gap * uniform() * 0x1p39 * 4);
        y.push_back(x.back() + step);
        largest = std::max(largest, std::abs(y.back() - x.back()));
      }
      const double eps_q = u * (4 * range(x) + 4 * std::log(300.0) + 4);
      // Without the offset, small logits make y − x inexact by u times the logit at most.
      const double eps_d = 2 * largest * (2 * eps_q + 20 * u) + (offset == 0 ? 6 * u : 0);
      for (double beta : betas) {
        const Outcome<Real100> truth = evaluate<Real100>(x, y, beta);
        const double loss = pivot(truth.loss);
        const double bound = 1.01 * (eps_d * sensitivity(x, y, beta) + (eps_q + 64 * u) * loss);
        EXPECT_GT(loss, 0);
        EXPECT_LE(error(evaluate<double>(x, y, beta).loss, truth.loss), bound)
            << gap << " " << offset << " " << beta;
        // The bound means something: a few digits at worst are lost, even at a gap of one grid step.
        if (offset != 0) {
          EXPECT_LE(bound, 1e-11 * loss);
        }
      }
    }
  }
}

// Catches: a wrong result for two entries, where both models are a sigmoid of one number; gaps at which e^gap
// overflows or both probabilities of one entry underflow.
TEST(Divergence, ClosedFormForTwoEntries) {
  const double gaps[] = {0, 1e-8, -0.1, 1, -20, 37, 700, -700, 1000, -1000};
  for (double x_gap : gaps) {
    for (double y_gap : gaps) {
      const Row x{0, -x_gap}, y{0, -y_gap};
      const Real100 q = 1 / (1 + exp(-Real100(x_gap))), p = 1 / (1 + exp(-Real100(y_gap)));
      const Real100 not_q = 1 / (1 + exp(Real100(x_gap))), not_p = 1 / (1 + exp(Real100(y_gap)));
      for (double beta : betas) {
        const Real100 m = beta * p + (1 - Real100(beta)) * q,
                      not_m = beta * not_p + (1 - Real100(beta)) * not_q;
        const auto kl = [](const Real100& a, const Real100& not_a, const Real100& b, const Real100& not_b) {
          return Real100(a * log(a / b) + not_a * log(not_a / not_b));
        };
        const Real100 expected =
            beta == 0 ? kl(p, not_p, q, not_q)
            : beta == 1
                ? kl(q, not_q, p, not_p)
                : Real100(beta * kl(p, not_p, m, not_m) + (1 - Real100(beta)) * kl(q, not_q, m, not_m));
        const double actual = evaluate<double>(x, y, beta).loss;
        EXPECT_LE(error(actual, expected), loss_bound(x, y, beta, pivot(expected)) + pivot(slack(expected)))
            << x_gap << " " << y_gap << " " << beta;
        if (x_gap == y_gap) {
          EXPECT_EQ(actual, 0);
        }
      }
    }
  }
}

double entropy(double beta) {
  return -beta * std::log(beta) - (1 - beta) * std::log1p(-beta);
}

// Catches: NaN from log M when both probabilities underflow, 0·(−inf), a masked entry counted.
TEST(Divergence, KnownValues) {
  EXPECT_EQ(evaluate<double>({0, -120}, {0, -120}, 0.5).loss, 0);
  EXPECT_EQ(evaluate<double>({3, -infinity, 5}, {103, -infinity, 105}, 0.5).loss, 0);
  EXPECT_EQ(evaluate<double>({7}, {-900}, 0.3).loss, 0);
  // p = (1/2, 1/2), q = (1, 0): D = ln 2 − 3/4·ln 3 + ln 2 / 2 ... = 3/4·ln(4/3); each entry of q = 0 adds
  // p·ln 2 / 2.
  const double masked = 0.75 * std::log(4.0 / 3.0);
  EXPECT_NEAR(evaluate<double>({0, -infinity}, {0, 0}, 0.5).loss, masked, 8 * u);
  EXPECT_NEAR(evaluate<double>({0, 0}, {0, -infinity}, 0.5).loss, masked, 8 * u);
  // Disjoint supports: D is the entropy of which model it was. Two functions within 2u, and eps of the head.
  for (double beta : {0.1, 0.5, 0.9}) {
    EXPECT_NEAR(evaluate<double>({0, -infinity}, {-infinity, 0}, beta).loss, entropy(beta), 128 * u);
    EXPECT_NEAR(evaluate<double>({1000, 0}, {0, 1000}, beta).loss, entropy(beta), 1e4 * u);
  }
}

// Catches: an endpoint that takes the limit (0) in place of the KL divergence, or the wrong direction.
TEST(Divergence, EndpointsAreTheTwoKullbackLeiblerDivergences) {
  const Row one{0, -infinity}, both{0, 0};
  EXPECT_NEAR(evaluate<double>(both, one, 0).loss, std::log(2.0),
              8 * u);                                        // KL(p‖q), p = (1, 0), q = (1/2, 1/2)
  EXPECT_EQ(evaluate<double>(both, one, 1).loss, infinity);  // KL(q‖p)
  EXPECT_EQ(evaluate<double>(one, both, 0).loss, infinity);
  EXPECT_NEAR(evaluate<double>(one, both, 1).loss, std::log(2.0), 8 * u);
  EXPECT_GT(evaluate<double>(one, both, std::numeric_limits<double>::min()).loss, 0);
  EXPECT_LT(evaluate<double>(one, both, 1e-300).loss, 1e-290);  // the limit, not the endpoint
  EXPECT_LT(evaluate<double>(one, both, std::nextafter(1, 0)).loss, 1e-15);
}

// Catches: a distribution made up for a row that has none.
TEST(Divergence, RowsWithoutADistributionAreRefused) {
  const Row good{1, 2, 3};
  for (const Row& bad : {Row{1, nan, 3}, Row{infinity, 2, 3}, Row{nan, nan, nan}, Row{1, 2, infinity},
                         Row{-infinity, -infinity, -infinity}}) {
    EXPECT_FALSE(evaluate<double>(bad, good, 0.5).exists);
    EXPECT_FALSE(evaluate<double>(good, bad, 0.5).exists);
    EXPECT_FALSE(evaluate<Real100>(bad, good, 0.5).exists);
    EXPECT_FALSE(evaluate<Interval<40>>(good, bad, 0.5).exists);
  }
}

// Catches: a formula that encloses nothing because a branch is taken on one end only.
RC_GTEST_PROP(Divergence, IntervalsEncloseTheTruth, (std::uint64_t seed, bool with_zeros)) {
  const Rows rows = random_rows(seed, with_zeros);
  for (double beta : betas) {
    const Real100 truth = evaluate<Real100>(rows.x, rows.y, beta).loss;
    const Interval<40> enclosure = evaluate<Interval<40>>(rows.x, rows.y, beta).loss;
    const Real100 own_error = std::isinf(pivot(truth)) ? Real100(0) : slack(truth);
    RC_ASSERT(mpfr_lessequal_p(enclosure.backend().left_data(), Real100(truth + own_error).backend().data()));
    RC_ASSERT(
        mpfr_greaterequal_p(enclosure.backend().right_data(), Real100(truth - own_error).backend().data()));
  }
}

// Relative errors of the three functions on a fine grid of both signs, logarithmic up to `largest` and dense
// around where their formulas change.
template <class Function, class Exact>
double worst_relative_error(double smallest, double largest, double most_negative, const Function& function,
                            const Exact& exact) {
  double worst = 0;
  const auto visit = [&](double x) {
    if (x <= most_negative) return;
    const Real100 truth = exact(Real100(x));
    worst = larger_or_nan(worst, pivot(Real100(abs(Real100(function(x) - truth)) / truth)));
  };
  for (double x = smallest; x < largest; x *= 1.01) {
    visit(x);
    visit(-x);
  }
  std::mt19937_64 random(3);
  for (int i = 0; i < 3000; ++i) {
    const double x = static_cast<double>(random() >> 11) * 0x1p-52 - 1;  // [−1, 1)
    visit(x);
    visit(std::copysign(0.5, x) + x * 1e-3);
  }
  return worst;
}

// Catches: a series cut too early, a wrong coefficient, a branch that begins where the other formula cancels.
// The bounds are those that cancellation.h states.
TEST(Cancellation, FunctionsAreWithinTheirStatedBounds) {
  const auto psi100 = [](const Real100& d) { return psi(d); };
  const auto phi100 = [](const Real100& z) { return phi(z); };
  const auto log1p_gap100 = [](const Real100& z) { return log1p_gap(z); };
  // Down to 1e-30: there the defining formulas still keep 40 of their 100 digits.
  EXPECT_LE(worst_relative_error(
                1e-30, 700, -infinity, [](double d) { return psi(d); }, psi100),
            8 * u);
  EXPECT_LE(worst_relative_error(
                1e-30, 1e300, -1, [](double z) { return phi(z); }, phi100),
            16 * u);
  EXPECT_LE(worst_relative_error(
                1e-30, 1e300, -1, [](double z) { return log1p_gap(z); }, log1p_gap100),
            16 * u);
  EXPECT_EQ(psi(-infinity), 1);
  EXPECT_EQ(psi(-800.0), 1);
  EXPECT_EQ(psi(0.0), 0);
  EXPECT_EQ(phi(0.0), 0);
  EXPECT_EQ(log1p_gap(0.0), 0);
}

}  // namespace
}  // namespace fljsd
