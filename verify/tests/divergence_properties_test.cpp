// SPDX-License-Identifier: Apache-2.0
// Mathematical facts about the divergence of two rows of logits (docs/math.md, section 6), held against the
// spec in double and in 100 digits. In 100 digits the allowance is about 1e-95, so that nothing hides in it;
// in double the same code meets rounding, and the series near p = q.
//
// What is allowed. Let u be the unit roundoff, n the entries, R the largest finite |logit|. In normalise(), x
// − max is off by 2Ru; e^{x − max} by a relative (2R + 2)u; its sum S in [1, n] by (2R + 2 + n)u; log S by
// that and 2u·log n; and log q by (6R + n + 3·log n + 2)u. d = ((y − x) − offset) − shift collects at most
// eight times as much, the close branch included, where log1p has slope at most e. With
//
//   epsilon = (128R + 16n + 64·log(n + 1) + 128)·u,
//
// log p, log q and d are within epsilon/2. A term T = e^log_larger·g(d) then moves by at most epsilon/2·T
// through log_larger and epsilon/2·|dT/dd| through d, where dT/dd is beta·p·log(p/M) or (1−beta)·q·log(q/M),
// whichever has the smaller probability. Since |a·log(a/b)| <= a·log(a/b) + 2b/e, the sum of all is at most
// epsilon/2·(2D + 1), and the formulas' own roundings, 16u of terms whose parts add up to at most 4R + 2·log
// n + 4, fit into the other half. So |computed D − D| <= 2·epsilon·(1 + D).
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <ostream>
#include <span>
#include <vector>

#include "reference/divergence.h"
#include "verify/cases/random.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Logits of student and teacher.
struct LogitPair {
  std::vector<double> x, y;
};

void showValue(const LogitPair& rows, std::ostream& out) {
  for (const auto* row : {&rows.x, &rows.y}) {
    out << (row == &rows.x ? "x = {" : "y = {");
    for (std::size_t v = 0; v < row->size(); ++v) out << (v ? ", " : "") << rc::toString((*row)[v]);
    out << "}\n";
  }
}

// Rows of every kind that matters: spread from 1e-6 to 300 nats, common offsets up to 1e4, teachers that are
// independent, close to the student by 1 to 1e-9, equal or opposite, and entries of −inf.
LogitPair random_rows(std::uint64_t seed, std::size_t size, bool allow_removed) {
  const Random random(seed, 0x726f7773);
  Index next = 0;
  const auto pick = [&](const auto&... values) {
    const double all[] = {values...};
    return all[random.below(next++, static_cast<Index>(sizeof...(values)))];
  };
  const double spread = pick(1e-6, 1e-2, 1.0, 1.0, 10.0, 100.0);
  const double offset_x = pick(0.0, 0.0, 1e3, -1e4), offset_y = pick(offset_x, offset_x, 0.0, 1e4);
  const double gap = pick(0.0, 1e-9, 1e-6, 1e-3, 1.0), independent = pick(0.0, 1.0),
               sign = pick(1.0, 1.0, -1.0);
  const bool removed = allow_removed && random.below(next++, 4) == 0;
  LogitPair rows;
  for (std::size_t v = 0; v < size; ++v) {
    const double a = random.deviate(100 + static_cast<Index>(v)),
                 b = random.deviate(10000 + static_cast<Index>(v));
    rows.x.push_back(offset_x + spread * a);
    rows.y.push_back(offset_y + (independent == 1 ? spread * b : sign * spread * a + gap * b));
    if (!removed || v == 0) continue;  // entry 0 stays, so that both have a distribution
    const Index choice = random.below(20000 + static_cast<Index>(v), 6);
    if (choice == 0 || choice == 1) rows.x.back() = -infinity;
    if (choice == 1 || choice == 2) rows.y.back() = -infinity;
  }
  return rows;
}

std::vector<LogitPair> simpler(const LogitPair& rows) {
  std::vector<LogitPair> found;
  for (std::size_t v = rows.x.size(); rows.x.size() > 1 && v-- > 0;) {
    found.push_back(rows);
    for (auto* row : {&found.back().x, &found.back().y})
      row->erase(row->begin() + static_cast<std::ptrdiff_t>(v));
    const auto dead = [](const std::vector<double>& row) {
      return std::all_of(row.begin(), row.end(), [](double logit) { return logit == -infinity; });
    };
    if (dead(found.back().x) || dead(found.back().y)) found.pop_back();
  }
  for (std::size_t v = 0; v < rows.x.size(); ++v) {
    for (auto row : {&LogitPair::x, &LogitPair::y}) {
      const double value = (rows.*row)[v], rounded = std::trunc(value);
      if (value == rounded || !std::isfinite(value)) continue;
      found.push_back(rows);
      (found.back().*row)[v] = rounded;
    }
  }
  return found;
}

rc::Gen<LogitPair> any_rows(std::size_t size, bool allow_removed = true) {
  return [=](rc::Random random, int) {
    return rc::shrinkable::shrinkRecur(
        random_rows(random.next(), size, allow_removed),
        [](const LogitPair& rows) { return rc::seq::fromContainer(simpler(rows)); });
  };
}
LogitPair some_rows(bool allow_removed = true) {
  const auto size = *rc::gen::element<std::size_t>(1, 2, 3, 5, 8, 17, 40);
  return *any_rows(size, allow_removed);
}

double some_beta() {
  return *rc::gen::element(0.5, 0.5, 0.25, 0.75, 0.1, 0.9, 1e-3, 1 - 1e-3, 0x1p-30, 1 - 0x1p-30, 1.0 / 3);
}

template <class Real>
constexpr double unit = 0x1p-53;
template <>
constexpr double unit<Real100> = 1e-100;  // 100 decimal digits are 334 bits here: 2^-334 is 3e-101

// Two rows of probabilities, normalised in Real.
template <class Real>
class Distributions {
 public:
  Distributions(std::vector<Real> x, std::vector<Real> y) : log_larger_(std::move(x)), d_(std::move(y)) {
    double largest = 0;
    for (const auto* row : {&log_larger_, &d_})
      for (const Real& logit : *row)
        if (std::isfinite(pivot(logit))) largest = std::max(largest, std::abs(pivot(logit)));
    const auto n = static_cast<double>(d_.size());
    epsilon_ = (128 * largest + 16 * n + 64 * std::log(n + 1) + 128) * unit<Real>;
    RC_ASSERT(normalise(std::span<Real>(log_larger_), std::span<Real>(d_)));
  }
  explicit Distributions(const LogitPair& rows)
      : Distributions({rows.x.begin(), rows.x.end()}, {rows.y.begin(), rows.y.end()}) {}

  std::size_t size() const { return d_.size(); }
  LogRatio<Real> entry(std::size_t v) const { return {log_larger_[v], d_[v]}; }
  Real p(std::size_t v) const { return entry(v).empty() ? Real(0) : entry(v).p(); }
  Real q(std::size_t v) const { return entry(v).empty() ? Real(0) : entry(v).q(); }
  Real divergence(const Real& beta) const {
    return fljsd::divergence(std::span<const Real>(log_larger_), std::span<const Real>(d_), beta);
  }
  Real student_kl(const Real& beta) const {
    return fljsd::student_kl(std::span<const Real>(log_larger_), std::span<const Real>(d_), beta);
  }
  // Half the 1-norm of p − q; within n·epsilon/2 of the true one, and no term of it is off by more than its
  // share.
  Real total_variation() const {
    Real sum = 0;
    for (std::size_t v = 0; v < size(); ++v) {
      const Real difference = p(v) - q(v);
      sum += pivot(difference) < 0 ? Real(-difference) : difference;
    }
    return sum / 2;
  }
  double epsilon() const { return epsilon_; }
  // What a computed divergence may be off by.
  double allowed(const Real& divergence) const { return 2 * epsilon_ * (1 + std::abs(pivot(divergence))); }

 private:
  std::vector<Real> log_larger_, d_;
  double epsilon_ = 0;
};

// −x·log x, 0 at 0.
template <class Real>
Real entropy_term(const Real& x) {
  using std::log;
  return pivot(x) > 0 ? Real(-x * log(x)) : Real(0);
}
// h(beta), the largest divergence.
template <class Real>
Real entropy(const Real& beta) {
  return entropy_term(beta) + entropy_term(Real(1 - beta));
}

// Runs body(number) with a double and with a Real100, from which it takes its type.
template <class Body>
void in_both_tiers(const Body& body) {
  body(double{});
  body(Real100{});
}

template <class Real>
void at_most(const Real& lower, const Real& upper, double allowed) {
  const bool holds = lower <= upper + allowed;
  if (!holds) {
    RC_FAIL(rc::toString(pivot(lower)) + " must be at most " + rc::toString(pivot(upper)) + " within " +
            rc::toString(allowed) + "; it exceeds it by " + rc::toString(pivot(Real(lower - upper))));
  }
}

// Σ over v of the summands is D only because multiples of p − q were added that make each of them >= 0: the
// tangent of a convex function lies below it. Catches a summand whose tangent is missing, and series cut too
// early.
RC_GTEST_PROP(Divergence, HasNoNegativeTerms, ()) {
  const LogitPair rows = some_rows();
  const double beta = *rc::gen::element(0.0, 1.0, some_beta());
  in_both_tiers([&](auto zero) {
    using Real = decltype(zero);
    const Distributions<Real> pair(rows);
    for (std::size_t v = 0; v < pair.size(); ++v) {
      // In double, psi, phi and log1p_gap have a small relative error, and phi is at most about half of
      // beta·psi: no sign can flip. In 100 digits they cancel: an absolute error of a few u of q·(1 + e^d).
      const double scale = std::is_same_v<Real, double> ? 0 : 64 * unit<Real>;
      const double allowed = scale * pivot(Real(pair.p(v) + pair.q(v)));
      at_most(Real(-divergence_term(pair.entry(v), Real(beta))), zero, allowed);
      if (beta > 0) at_most(Real(-student_kl_term(pair.entry(v), Real(beta))), zero, allowed);
    }
  });
}

// D is the information that an entry gives about which model it came from: between 0 and the entropy h(beta)
// of that choice. Catches a missing half, and logarithms to another base.
RC_GTEST_PROP(Divergence, LiesBetweenZeroAndEntropy, ()) {
  const LogitPair rows = some_rows();
  const double beta = some_beta();
  in_both_tiers([&](auto zero) {
    using Real = decltype(zero);
    const Distributions<Real> pair(rows);
    const Real d = pair.divergence(beta);
    at_most(zero, d, pair.allowed(d));
    at_most(d, entropy(Real(beta)), pair.allowed(d));
  });
}

// 2·beta·(1−beta)·TV² <= D <= h(beta)·TV. Left: Pinsker's inequality 2·TV² <= KL for (p, M) and (q, M), whose
// total variations are (1−beta)·TV and beta·TV. Right: D is convex in (p, q), and (p, q) is the mixture of a
// pair of equal distributions, weight 1 − TV, and a disjoint pair, weight TV. TV is off by epsilon at most,
// the left side by 2·epsilon. Catches beta and 1−beta exchanged in the mixture only, and a divergence that is
// linear in p − q.
RC_GTEST_PROP(Divergence, IsSandwichedByTotalVariation, ()) {
  const LogitPair rows = some_rows();
  const double beta = some_beta();
  in_both_tiers([&](auto zero) {
    using Real = decltype(zero);
    const Distributions<Real> pair(rows);
    const Real d = pair.divergence(beta), tv = pair.total_variation();
    const double allowed = pair.allowed(d) + 2 * pair.epsilon();
    at_most(Real(2 * Real(beta) * (1 - Real(beta)) * tv * tv), d, allowed);
    at_most(d, Real(entropy(Real(beta)) * tv), allowed);
  });
}

// D <= beta·(1−beta)·(KL(p‖q) + KL(q‖p)), because −log M <= −beta·log p − (1−beta)·log q. Catches endpoints
// that are not the two divergences.
RC_GTEST_PROP(Divergence, IsBelowSymmetrisedKl, ()) {
  const LogitPair rows = some_rows();
  const double beta = some_beta();
  in_both_tiers([&](auto zero) {
    using Real = decltype(zero);
    const Distributions<Real> pair(rows);
    const Real d = pair.divergence(beta), kl = pair.divergence(0), lk = pair.divergence(1);
    if (std::isinf(pivot(kl)) || std::isinf(pivot(lk))) return;  // nothing to compare with
    const Real limit = Real(beta) * (1 - Real(beta)) * (kl + lk);
    at_most(d, limit, pair.allowed(d) + beta * (1 - beta) * (pair.allowed(kl) + pair.allowed(lk)));
  });
}

// Data processing: telling two entries apart no longer, by adding their probabilities under both models,
// never increases D. The merged logit log(e^a + e^b) is rounded to within u·(R + 1), which epsilon covers
// many times over. Catches terms that are not a function of the two probabilities homogeneous of degree 1.
RC_GTEST_PROP(Divergence, NeverGrowsByMerging, ()) {
  const LogitPair rows = some_rows();
  RC_PRE(rows.x.size() >= 2u);
  const double beta = *rc::gen::element(0.0, 1.0, some_beta());
  const auto merged = static_cast<std::size_t>(*rc::gen::arbitrary<std::uint16_t>()) % (rows.x.size() - 1);
  in_both_tiers([&](auto zero) {
    using Real = decltype(zero);
    const auto merge = [&](const std::vector<double>& row) {
      std::vector<Real> result(row.begin(), row.end());
      const Real larger = std::max(row[merged], row.back()), smaller = std::min(row[merged], row.back());
      using std::exp, std::log1p;
      if (pivot(smaller) > -infinity) result[merged] = larger + log1p(exp(Real(smaller - larger)));
      if (pivot(smaller) == -infinity) result[merged] = larger;
      result.pop_back();
      return result;
    };
    const Distributions<Real> whole(rows), less(merge(rows.x), merge(rows.y));
    const Real d = whole.divergence(beta), coarse = less.divergence(beta);
    if (std::isinf(pivot(d))) return;
    at_most(coarse, d, whole.allowed(d) + less.allowed(coarse));
  });
}

// D = H(M) − beta·H(p) − (1−beta)·H(q) is concave in beta, endpoints (in the limit: 0) included. Catches a
// mixture in log space, and a branch on beta that jumps.
RC_GTEST_PROP(Divergence, IsConcaveInBeta, ()) {
  const LogitPair rows = some_rows();
  std::array<double, 3> beta{some_beta(), some_beta(), some_beta()};
  std::sort(beta.begin(), beta.end());
  RC_PRE(beta[0] < beta[1] && beta[1] < beta[2]);
  in_both_tiers([&](auto zero) {
    using Real = decltype(zero);
    const Distributions<Real> pair(rows);
    const Real left = pair.divergence(beta[0]), mid = pair.divergence(beta[1]),
               right = pair.divergence(beta[2]);
    const Real weight = (Real(beta[2]) - beta[1]) / (Real(beta[2]) - beta[0]);
    const Real chord = weight * left + (1 - weight) * right;
    at_most(chord, mid, pair.allowed(mid) + pair.allowed(left) + pair.allowed(right) + 8 * unit<Real>);
  });
}

// beta·KL(p‖q) = D_beta + KL(M‖q), and KL(M‖q) <= chi²(M‖q) = beta²·chi²(p‖q), so that
//   0 <= KL(p‖q) − D_beta/beta <= beta·chi²(p‖q),  chi² = Σ q·(e^d − 1)²,
// and likewise at the other end. Every part of D's error bound has a factor beta then: beta·p·|log(p/M)| for
// d <= 0, and (1−beta)·q·log(M/q) <= beta·p for d > 0. Catches endpoints exchanged, and an accuracy that is
// lost as beta -> 0.
RC_GTEST_PROP(Divergence, HasTheEndpointsAsSlopes, ()) {
  const LogitPair rows = some_rows(false);
  const double beta = *rc::gen::element(0x1p-10, 0x1p-20, 0x1p-40);
  in_both_tiers([&](auto zero) {
    using Real = decltype(zero);
    for (const bool swapped : {false, true}) {
      const Distributions<Real> pair(swapped ? LogitPair{rows.y, rows.x} : rows);
      // Written with q and p exchanged, and 1 − beta for beta, the other end is this one.
      const Real d = swapped ? Distributions<Real>(rows).divergence(1 - Real(beta)) : pair.divergence(beta);
      const Real kl = swapped ? Distributions<Real>(rows).divergence(1) : pair.divergence(0);
      Real chi_square = 0;
      for (std::size_t v = 0; v < pair.size(); ++v) {
        const Real difference = pair.p(v) - pair.q(v);
        // p²/q overflows in double; then there is no limit to compare with.
        chi_square += difference * difference / pair.q(v);
      }
      const double allowed = 4 * pair.epsilon() * (2 + pivot(kl));
      at_most(Real(d / beta), kl, allowed);
      // chi² is off by a relative 4·epsilon; its terms where p ≈ q by 4·epsilon·|p − q|.
      const double chi_allowed = beta * 8 * pair.epsilon() * (1 + pivot(chi_square));
      if (std::isfinite(pivot(chi_square)))
        at_most(Real(kl - beta * chi_square), Real(d / beta), allowed + chi_allowed);
    }
  });
}

// Moving q straight towards p never increases D(p, q): D is convex in q and has its minimum 0 at q = p. The
// logits of the mixtures are logarithms of probabilities, off by epsilon, which moves D by at most another
// 2·epsilon. Catches a divergence that is not smallest at p = q.
RC_GTEST_PROP(Divergence, FallsAlongTheMixturePath, ()) {
  const LogitPair rows = some_rows();
  const double beta = some_beta();
  in_both_tiers([&](auto zero) {
    using Real = decltype(zero);
    using std::log;
    const Distributions<Real> pair(rows);
    std::optional<Real> last;
    for (const double s : {0.0, 0x1p-20, 0.125, 0.5, 0.75, 1 - 0x1p-20, 1.0}) {
      std::vector<Real> student(pair.size()), teacher(pair.size());
      for (std::size_t v = 0; v < pair.size(); ++v) {
        const Real mixed = (1 - Real(s)) * pair.q(v) + Real(s) * pair.p(v);
        student[v] = pivot(mixed) > 0 ? Real(log(mixed)) : Real(-infinity);
        teacher[v] = pivot(pair.p(v)) > 0 ? Real(log(pair.p(v))) : Real(-infinity);
      }
      const Distributions<Real> step(student, teacher);
      const Real d = step.divergence(beta);
      if (last) at_most(d, *last, 2 * (step.allowed(d) + pair.allowed(d) + 4 * pair.epsilon()));
      last = d;
    }
  });
}

// √D is a metric at beta = ½ (Endres and Schindelin 2003). With each D within its allowance. Catches a
// divergence that is not symmetric at ½.
RC_GTEST_PROP(Divergence, HasAMetricAsItsRoot, ()) {
  const auto size = *rc::gen::element<std::size_t>(2, 3, 8);
  const LogitPair ab = *any_rows(size), other = *any_rows(size);
  RC_PRE(ab.x.size() == other.x.size());
  in_both_tiers([&](auto zero) {
    using Real = decltype(zero);
    using std::sqrt;
    const auto d = [&](const std::vector<double>& a, const std::vector<double>& b, double& allowed) {
      const Distributions<Real> pair(LogitPair{a, b});
      const Real value = pair.divergence(0.5);
      allowed = pair.allowed(value);
      return value;
    };
    double allowed_ab, allowed_bc, allowed_ac;
    const Real d_ab = d(ab.x, ab.y, allowed_ab), d_bc = d(ab.y, other.x, allowed_bc);
    const Real d_ac = d(ab.x, other.x, allowed_ac);
    const Real detour = sqrt(d_ab + allowed_ab) + sqrt(d_bc + allowed_bc);
    at_most(d_ac, Real(detour * detour), allowed_ac + 8 * unit<Real>);
  });
}

// D_beta(p, q) = D_{1−beta}(q, p). Catches beta used for the wrong model in one of the branches.
RC_GTEST_PROP(Divergence, IsSymmetricUpToBeta, ()) {
  const LogitPair rows = some_rows();
  const double other = 1 - *rc::gen::element(0.0, 1.0, some_beta()), beta = 1 - other;  // both exact
  in_both_tiers([&](auto zero) {
    using Real = decltype(zero);
    const Distributions<Real> pair(rows), swapped(LogitPair{rows.y, rows.x});
    const Real a = pair.divergence(beta), b = swapped.divergence(other);
    if (std::isinf(pivot(a))) {
      RC_ASSERT(pivot(b) == pivot(a));
      return;
    }
    at_most(a, b, pair.allowed(a) + swapped.allowed(b));
    at_most(b, a, pair.allowed(a) + swapped.allowed(b));
  });
}

// Supports that do not meet: D = h(beta), or infinite at the endpoints. Catches 0·(−inf), and logarithms of a
// clamped 0.
RC_GTEST_PROP(Divergence, OfDisjointSupportsIsTheEntropy, ()) {
  LogitPair rows = some_rows(false);
  RC_PRE(rows.x.size() >= 2u);
  for (std::size_t v = 0; v < rows.x.size(); ++v) (v % 2 == 0 ? rows.x : rows.y)[v] = -infinity;
  const double beta = some_beta();
  in_both_tiers([&](auto zero) {
    using Real = decltype(zero);
    const Distributions<Real> pair(rows);
    const Real d = pair.divergence(beta), h = entropy(Real(beta));
    at_most(d, h, pair.allowed(d));
    at_most(h, d, pair.allowed(d));
    RC_ASSERT(pivot(pair.divergence(0)) == infinity);
    RC_ASSERT(pivot(pair.divergence(1)) == infinity);
  });
}

// Two entries: everything is a function of p_1 = 1/(1 + e^{y_0 − y_1}) and q_1, and D = H(M) − beta·H(p) −
// (1−beta)·H(q), evaluated in 100 digits without any code of the spec. Its three entropies are below 1, so it
// is off by 1e-98 at most. Catches a wrong formula, whatever inequalities it still obeys.
RC_GTEST_PROP(Divergence, HasAClosedFormForTwoEntries, ()) {
  const LogitPair rows = *any_rows(2, false);
  RC_PRE(rows.x.size() == 2u);
  const double beta = *rc::gen::element(0.0, 1.0, some_beta());
  const auto second = [](const std::vector<double>& row) {
    return Real100(1 / (1 + exp(Real100(Real100(row[0]) - Real100(row[1])))));
  };
  const auto first = [](const std::vector<double>& row) {
    return Real100(1 / (1 + exp(Real100(Real100(row[1]) - Real100(row[0])))));
  };
  const std::array<Real100, 2> p{first(rows.y), second(rows.y)}, q{first(rows.x), second(rows.x)};
  Real100 expected = 0;
  for (const std::size_t v : {std::size_t{0}, std::size_t{1}}) {
    if (beta == 0) expected += p[v] * log(Real100(p[v] / q[v]));
    if (beta == 1) expected += q[v] * log(Real100(q[v] / p[v]));
    if (beta > 0 && beta < 1) {
      expected += entropy_term(Real100(beta * p[v] + (1 - Real100(beta)) * q[v])) -
                  beta * entropy_term(p[v]) - (1 - Real100(beta)) * entropy_term(q[v]);
    }
  }
  in_both_tiers([&](auto zero) {
    using Real = decltype(zero);
    const Distributions<Real> pair(rows);
    const Real d = pair.divergence(beta);
    const double allowed = pair.allowed(d) + 1e-98;
    at_most(Real100(d), expected, allowed);
    at_most(expected, Real100(d), allowed);
  });
}

// Σ_v dD/dx_v = 0: D does not change when all logits of a row are moved together. An element is
// weight·q·(log(q/M) − KL), off by epsilon·q·(|log(q/M)| + |KL| + 2) at most, of which the sum over v is
// below epsilon·(2·KL + 2/e + 2 + ...) as for D. Catches a row constant that does not belong to the row.
RC_GTEST_PROP(Divergence, HasGradientsThatSumToZero, ()) {
  const LogitPair rows = some_rows();
  const double beta = *rc::gen::element(0.0, 1.0, some_beta());
  in_both_tiers([&](auto zero) {
    using Real = decltype(zero);
    const Distributions<Real> pair(rows);
    const Real kl = beta == 0 ? zero : pair.student_kl(beta);
    if (std::isinf(pivot(kl))) return;  // not judged
    Sum<Real> sum;
    for (std::size_t v = 0; v < pair.size(); ++v) sum.add(gradient_term(pair.entry(v), Real(beta), kl));
    const double allowed = 4 * pair.epsilon() * (2 + pivot(kl));
    at_most(sum.value(), zero, allowed);
    at_most(zero, sum.value(), allowed);
  });
}

}  // namespace
}  // namespace fljsd
