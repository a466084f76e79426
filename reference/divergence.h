// SPDX-License-Identifier: Apache-2.0
// THE SPEC: generalized Jensen–Shannon divergence of two rows of logits, and its gradient. docs/math.md
// derives it.
//
//   x, y  logits of student and teacher (temperature already applied), v = 0 .. vocab-1
//   q = softmax(x), p = softmax(y), M = beta·p + (1−beta)·q, d_v = log p_v − log q_v, z_v = beta·expm1(d_v)
//   so that p_v = q_v·e^{d_v} and M_v = q_v·(1 + z_v)
//
//   D = Σ_v beta·p_v·log(p_v/M_v) + (1−beta)·q_v·log(q_v/M_v)     0 < beta < 1
//   D = KL(p‖q) for beta = 0,  KL(q‖p) for beta = 1
//   dD/dx_v = (1−beta)·q_v·(log(q_v/M_v) − KL(q‖M));  q_v − p_v for beta = 0;
//             q_v·(log(q_v/p_v) − KL(q‖p)) for beta = 1
//
// Everything is written in d: at p = q nothing cancels, and a large offset common to all logits has left
// before anything is rounded. A logit of −inf is probability 0, exactly. A row with NaN, +inf, or no finite
// logit has no distribution, and every result is NaN. Branches look only at pivot(), so the template also
// holds for intervals (see real.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "reference/cancellation.h"
#include "reference/real.h"

namespace fljsd {

// One vocabulary entry after normalisation. The larger probability is kept, so that the smaller one may be 0
// (d = ±inf) without forming inf − inf. Both zero: log_larger = −inf, d = 0.
template <class Real>
struct LogRatio {
  Real log_larger;  // log max(p_v, q_v)
  Real d;           // log p_v − log q_v

  bool empty() const { return pivot(log_larger) == -std::numeric_limits<double>::infinity(); }
  Real q() const {
    using std::exp;
    return pivot(d) > 0 ? exp(log_larger - d) : exp(log_larger);
  }
  Real p() const {
    using std::exp;
    return pivot(d) > 0 ? exp(log_larger) : exp(log_larger + d);
  }
  LogRatio swapped() const { return {log_larger, -d}; }  // the roles of p and q exchanged
};

// Overwrites logits x, y of one row by log_larger and d of each entry. Returns false, leaving the row in an
// unspecified state, when a model has no distribution there.
template <class Real>
bool normalise(std::span<Real> x, std::span<Real> y);

// This entry's share of D: ≥ 0, and Σ_v of it is D. (It is the summand above plus a multiple of p_v − q_v,
// whose sum is 0.)
template <class Real>
Real divergence_term(const LogRatio<Real>& entry, const Real& beta) {
  using std::exp, std::expm1, std::log;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (pivot(beta) > 0.5)
    return divergence_term(entry.swapped(), Real(1 - beta));  // D_beta(p, q) = D_{1−beta}(q, p)
  if (entry.empty()) return 0;
  const Real& d = entry.d;
  if (pivot(beta) == 0) {
    // KL(p‖q) = Σ p·d − (p − q) = Σ q·ψ(d)
    if (pivot(d) == infinity) return Real(infinity);
    return pivot(d) > 1 ? entry.p() * (d + expm1(-d)) : entry.q() * psi(d);
  }
  if (const Real z = beta * expm1(d); pivot(z) <= 1) {
    // beta·p·d − M·log(M/q) − (beta·(p − q) − (M − q)) = q·(beta·ψ(d) − φ(z)), where φ(z) ≤ about half of
    // beta·ψ(d)
    return entry.q() * (beta * psi(d) - phi(z));
  }
  // p dominates M: log(p/M) is at most −log(beta), and nothing cancels in the definition itself
  const Real log_p_over_m = -log(beta + (1 - beta) * exp(-d));
  const Real q_part = pivot(d) == infinity ? Real(0) : Real((1 - beta) * exp(-d) * (log_p_over_m - d));
  return entry.p() * (beta * log_p_over_m + q_part);
}

// log(q_v/M_v) = −log(1 + z_v); −inf where q_v = 0 < p_v, and log(q_v/p_v) for beta = 1.
template <class Real>
Real log_q_over_m(const LogRatio<Real>& entry, const Real& beta) {
  using std::exp, std::expm1, std::log, std::log1p;
  const Real& d = entry.d;
  if (pivot(beta) == 1) return -d;
  const Real z = beta * expm1(d);
  if (pivot(d) > 30 && !(pivot(z) <= 0.5)) return -(d + log(beta + (1 - beta) * exp(-d)));  // z may overflow
  // Close to z = −1 the sum 1 + z = (1−beta) + beta·e^d has lost its digits, but its terms have not.
  return pivot(z) < -0.5 ? Real(-log((1 - beta) + beta * exp(d))) : Real(-log1p(z));
}

// This entry's share of KL(q‖M), beta > 0: q·(z − log(1+z)) ≥ 0, whose sum is the divergence because Σ q·z =
// 0.
template <class Real>
Real student_kl_term(const LogRatio<Real>& entry, const Real& beta) {
  using std::expm1;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (entry.empty()) return 0;
  const Real& d = entry.d;
  if (pivot(beta) == 1 && pivot(d) == -infinity) return Real(infinity);
  const Real z = beta * expm1(d);
  if (pivot(d) > 30 && !(pivot(z) <= 0.5)) {  // z may overflow, but q·z = beta·(p − q) does not
    const Real q_log = pivot(d) == infinity ? Real(0) : Real(entry.q() * log_q_over_m(entry, beta));
    return -beta * entry.p() * expm1(-d) + q_log;
  }
  if (pivot(z) > -0.5 && pivot(z) < 0.5) return entry.q() * log1p_gap(z);
  return entry.q() * (z + log_q_over_m(entry, beta));
}

// D of a row that normalise() has prepared.
template <class Real>
Real divergence(std::span<const Real> log_larger, std::span<const Real> d, const Real& beta) {
  Sum<Real> sum;
  for (std::size_t v = 0; v < d.size(); ++v)
    sum.add(divergence_term(LogRatio<Real>{log_larger[v], d[v]}, beta));
  return sum.value();
}

// KL(q‖M) of a row that normalise() has prepared; KL(q‖p) for beta = 1. The one number per row that the
// gradient needs.
template <class Real>
Real student_kl(std::span<const Real> log_larger, std::span<const Real> d, const Real& beta) {
  Sum<Real> sum;
  for (std::size_t v = 0; v < d.size(); ++v)
    sum.add(student_kl_term(LogRatio<Real>{log_larger[v], d[v]}, beta));
  return sum.value();
}

// dD/dx_v, given kl = student_kl(...) of the row (unused for beta = 0).
template <class Real>
Real gradient_term(const LogRatio<Real>& entry, const Real& beta, const Real& kl) {
  using std::expm1;
  if (entry.empty()) return 0;
  if (pivot(beta) == 0) return pivot(entry.d) > 0 ? entry.p() * expm1(-entry.d) : -entry.q() * expm1(entry.d);
  if (pivot(entry.d) == std::numeric_limits<double>::infinity()) return 0;  // q_v = 0, and q·log q -> 0
  const Real weight = pivot(beta) == 1 ? Real(1) : Real(1 - beta);
  return weight * entry.q() * (log_q_over_m(entry, beta) - kl);
}

// (y − x) − (base_y − base_x), by whichever order of subtracting forms the smaller numbers and so rounds
// less: across the models, where they share an offset, or within each, where the logits of one lie far from
// the other's. Across, a teacher near 1e38 would swallow the student's logits, and q of its top entry with
// them.
template <class Real>
Real difference_of_gaps(const Real& x, const Real& y, const Real& base_x, const Real& base_y) {
  const Real across = y - x, across_bases = base_y - base_x;
  const Real within_x = x - base_x, within_y = y - base_y;
  const auto larger = [](const Real& a, const Real& b) {
    return std::max(std::abs(pivot(a)), std::abs(pivot(b)));
  };
  return larger(across, across_bases) <= larger(within_x, within_y) ? Real(across - across_bases)
                                                                    : Real(within_y - within_x);
}

template <class Real>
bool normalise(std::span<Real> x, std::span<Real> y) {
  using std::exp, std::expm1, std::log, std::log1p;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto arg_max = [](std::span<const Real> row) {
    std::size_t best = 0;
    for (std::size_t v = 0; v < row.size(); ++v) {
      const double value = pivot(row[v]);
      if (!(value < infinity)) return row.size();  // NaN or +inf
      if (value > pivot(row[best])) best = v;
    }
    return pivot(row[best]) == -infinity ? row.size() : best;
  };
  const std::size_t top_x = arg_max(x), top_y = arg_max(y);
  if (top_x == x.size() || top_y == y.size()) return false;

  // log-sum-exp is kept as the pair (max, log_sum): their sum would round away what the logits' offset
  // leaves.
  const auto log_sum = [](std::span<const Real> row, const Real& max) {
    Sum<Real> sum;
    for (const Real& value : row) {
      if (pivot(value) != -infinity) sum.add(exp(value - max));
    }
    return Real(log(sum.value()));
  };
  const Real max_x = x[top_x], max_y = y[top_y];
  const Real log_sum_x = log_sum(x, max_x), log_sum_y = log_sum(y, max_y);

  // d_v = gap_v − shift with gap_v = (y_v − x_v) − offset and shift = lse(y) − lse(x) − offset, for any
  // offset. When the two rows are close up to an offset, the two log-sum-exps cancel, but shift = log Σ
  // q·e^gap does not; its offset is that of the student's top entry. Otherwise it is the difference of the
  // maxima.
  const auto close_gap = [&, base_x = x[top_x], base_y = y[top_x]](std::size_t v) {
    return difference_of_gaps(x[v], y[v], base_x, base_y);
  };
  const auto far_gap = [&](std::size_t v) { return difference_of_gaps(x[v], y[v], max_x, max_y); };
  bool close = true;
  for (std::size_t v = 0; v < x.size() && close; ++v) {
    const bool no_x = pivot(x[v]) == -infinity, no_y = pivot(y[v]) == -infinity;
    close = no_x || no_y ? no_x && no_y : std::abs(pivot(close_gap(v))) <= 1;
  }
  Real shift = log_sum_y - log_sum_x;
  if (close) {
    Sum<Real> sum;
    for (std::size_t v = 0; v < x.size(); ++v) {
      if (pivot(x[v]) == -infinity) continue;
      sum.add(exp((x[v] - max_x) - log_sum_x) * expm1(close_gap(v)));
    }
    shift = log1p(sum.value());
  }
  for (std::size_t v = 0; v < x.size(); ++v) {
    const bool no_x = pivot(x[v]) == -infinity, no_y = pivot(y[v]) == -infinity;
    const Real log_q = (x[v] - max_x) - log_sum_x, log_p = (y[v] - max_y) - log_sum_y;
    const Real d = no_x && no_y ? Real(0)
                   : no_x       ? Real(infinity)
                   : no_y       ? Real(-infinity)
                                : Real((close ? close_gap(v) : far_gap(v)) - shift);
    x[v] = pivot(d) > 0 ? log_p : log_q;
    y[v] = d;
  }
  return true;
}

}  // namespace fljsd
