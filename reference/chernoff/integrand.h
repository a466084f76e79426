// SPDX-License-Identifier: Apache-2.0
// The functions that the one-pass identity is about. docs/one_pass.md, sections 1 and 2.
//
// With s_v = ln(beta·p_v / ((1−beta)·q_v)) and M = beta·p + (1−beta)·q:
//
//   D          = h(beta)      − sqrt(beta(1−beta)) · Σ_v sqrt(p_v q_v)·W(s_v)
//   KL(q‖M)    = −ln(1−beta)  − sqrt(beta/(1−beta)) · Σ_v sqrt(p_v q_v)·U(s_v)
//   KL(p‖M)    = −ln(beta)    − sqrt((1−beta)/beta) · Σ_v sqrt(p_v q_v)·U(−s_v)
//
//   U(s) = e^{−s/2}·ln(1 + e^s) = ∫_0^∞ Re[e^{iws} / (1/2 + iw)] / cosh(πw) dw
//   W(s) = U(s) + U(−s)         = ∫_0^∞ cos(ws) / ((w² + 1/4)·cosh(πw)) dw
//
// and sqrt(beta(1−beta)·p_v q_v) = M_v·mixture_weight(s_v). Real is double or a wider floating-point type.
#pragma once

#include <cmath>

namespace fljsd {

// U(s), without overflow for any finite s.
template <class Real>
Real student_kernel(const Real& s) {
  using std::exp, std::log1p;
  if (s > 0) return exp(-s / 2) * (s + log1p(exp(-s)));
  const Real e = exp(s);
  return exp(s / 2) * (e == 0 ? Real(1) : Real(log1p(e) / e));
}

// W(s): even, W(0) = 2 ln 2, and |s|·e^{−|s|/2} for large |s|.
template <class Real>
Real divergence_kernel(const Real& s) {
  return student_kernel(s) + student_kernel(Real(-s));
}

// 1/(1 + e^{−s}); with s = s_v this is beta·p_v/M_v.
template <class Real>
Real sigmoid(const Real& s) {
  using std::exp;
  if (s >= 0) return 1 / (1 + exp(-s));
  const Real e = exp(s);
  return e / (1 + e);
}

// 1/(2cosh(s/2)) = sqrt(sigmoid(s)·sigmoid(−s)).
template <class Real>
Real mixture_weight(const Real& s) {
  using std::exp;
  const Real e = exp(s > 0 ? Real(-s / 2) : Real(s / 2));
  return e / (1 + e * e);
}

// mixture_weight(s)·U(s) = (1−t)·ln(1/(1−t)) with t = sigmoid(s).
template <class Real>
Real weighted_student_kernel(const Real& s) {
  using std::exp, std::log1p;
  if (s <= 0) return sigmoid(Real(-s)) * log1p(exp(s));
  return sigmoid(Real(-s)) * (s + log1p(exp(-s)));
}

// mixture_weight(s)·W(s) = binary entropy of sigmoid(s), in nats.
template <class Real>
Real weighted_divergence_kernel(const Real& s) {
  return weighted_student_kernel(s) + weighted_student_kernel(Real(-s));
}

// The transform of W: the integrand of W(0). That of U is this one times (1/2 − iw).
template <class Real>
Real transform_density(const Real& w, const Real& pi) {
  using std::cosh;
  return 1 / ((w * w + Real(1) / 4) * cosh(pi * w));
}

// ln(beta/(1−beta)): s_v of a vocabulary entry with p_v = q_v.
inline double logit(double beta) {
  return std::log(beta) - std::log1p(-beta);
}

// h(beta) = −beta·ln(beta) − (1−beta)·ln(1−beta), the largest D.
inline double binary_entropy(double beta) {
  return -beta * std::log(beta) - (1 - beta) * std::log1p(-beta);
}

}  // namespace fljsd
