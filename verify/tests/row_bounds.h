// SPDX-License-Identifier: Apache-2.0
// How far the float64 spec may be from the truth on one row: bounds that the tests compare with.
//
// u = 2^-53, V entries, R_x and R_y the ranges of the rows' finite logits. In normalise(), with library
// functions within 2u:
//   x_v − max has error u·R, each exponential the relative error u·(R + 2), so log_sum the error
//   u·(R + 3 + 2·log V), and log q_v, of magnitude at most R + log V, the error u·(4R + 4·log V + 4);
//   d_v = ((y_v − x_v) − offset) − shift, where offset is a difference of logits itself, has error
//   u·(|y_v − x_v| + |offset| + 2·|d_v|) and that of both log_sums, and |offset| ≤ max|y − x| + R_x + R_y, so
//   that all of log q, log p and d are within
//     eps = u·(2·max|y − x| + 8·(R_x + R_y) + 8·log V + 16).
// Logits that are off by e_x and e_y themselves move log q by 2·e_x and d by 2·(e_x + e_y): they add 2·(e_x +
// e_y).
//
// D is a sum of terms q·f(d) ≥ 0 with q·f'(d) = beta·p·log(p/M) (or (1−beta)·q·log(q/M) when the roles are
// exchanged); an error eps in log q changes D by eps·D at most, and in d by eps·S, where
//   S = Σ beta·p·|log(p/M)| + (1−beta)·q·|log(q/M)|   (p·|log(p/q)| for beta = 0, q·|log(q/p)| for 1).
// Evaluating a term costs a relative 64u: psi within 8u, phi within 16u, and beta·psi − phi loses a factor 3.
//   |error of D| ≤ 1.01·(eps·(D + S) + 64u·D), the 1.01 for terms of second order.
//
// g_v = (1−beta)·q·(L − KL), L = log(q/M): an error eps' = eps + 64u of log q and d costs q·(|L| + KL)·eps'
// by way of q, q·eps' by way of L because |dL/dd| = beta·p/M ≤ 1, and q·(1 + KL)·eps' by way of KL. For beta
// = 0 it is q − p = −q·expm1(d), whose error is at most (|q − p| + max(p, q))·eps'.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "verify/tests/definition.h"

namespace fljsd::row_bounds {

constexpr double u = 0x1p-53;

inline double range(const std::vector<double>& row) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  double lo = infinity, hi = -infinity;
  for (double x : row) {
    if (x == -infinity) continue;
    lo = std::min(lo, x);
    hi = std::max(hi, x);
  }
  return hi - lo;
}

// eps of the file's head.
inline double normalisation_error(const std::vector<double>& x, const std::vector<double>& y) {
  double difference = 0;
  for (std::size_t v = 0; v < x.size(); ++v)
    if (std::isfinite(x[v]) && std::isfinite(y[v])) difference = std::max(difference, std::abs(y[v] - x[v]));
  return u * (2 * difference + 8 * (range(x) + range(y)) + 8 * std::log(static_cast<double>(x.size())) + 16);
}

// S of the file's head.
inline double sensitivity(const std::vector<double>& x, const std::vector<double>& y, double beta) {
  const auto q = definition::softmax(definition::widen(x)), p = definition::softmax(definition::widen(y));
  const auto m = definition::mixture(p, q, beta);
  Real100 sum = 0;
  for (std::size_t v = 0; v < p.size(); ++v) {
    if (beta < 1 && p[v] != 0) sum += (beta == 0 ? 1 : beta) * p[v] * abs(log(p[v] / m[v]));
    if (beta > 0 && q[v] != 0) sum += (beta == 1 ? 1 : 1 - beta) * q[v] * abs(log(q[v] / m[v]));
  }
  return pivot(sum);
}

inline double loss_bound(const std::vector<double>& x, const std::vector<double>& y, double beta, double loss,
                         double logit_errors = 0) {
  const double eps = normalisation_error(x, y) + 2 * logit_errors;
  return 1.01 * (eps * (loss + sensitivity(x, y, beta)) + 64 * u * loss);
}

// Of each entry of dD/dx.
inline std::vector<double> gradient_bounds(const std::vector<double>& x, const std::vector<double>& y,
                                           double beta, double logit_errors = 0) {
  const double eps = normalisation_error(x, y) + 2 * logit_errors + 64 * u;
  const auto q = definition::softmax(definition::widen(x)), p = definition::softmax(definition::widen(y));
  const auto m = definition::mixture(p, q, beta);
  const double kl = beta == 0 ? 0 : pivot(definition::kl(q, m));
  std::vector<double> bounds;
  for (std::size_t v = 0; v < q.size(); ++v) {
    const double q_v = pivot(q[v]), p_v = pivot(p[v]);
    const double log_ratio = q[v] == 0 || beta == 0 ? 0 : std::abs(pivot(Real100(log(q[v] / m[v]))));
    const double scale =
        beta == 0 ? std::abs(q_v - p_v) + std::max(p_v, q_v) : q_v * (2 + 2 * kl + log_ratio);
    bounds.push_back(1.01 * eps * scale + std::numeric_limits<double>::denorm_min());
  }
  return bounds;
}

}  // namespace fljsd::row_bounds
