// SPDX-License-Identifier: Apache-2.0
// Weights that turn Chernoff sums into the divergence and the row constants of its gradient.
//
// The integrals of integrand.h become sums over the frequencies w_k = k·h, k = 0..K, h = 2π/period, so that
//
//   W(s) ≈ Σ_k Re[divergence_k·e^{i w_k s}]     U(s) ≈ Σ_k Re[student_k·e^{i w_k s}]     likewise U(−s)
//
// for every s at once, and a token needs only the K+1 Chernoff sums at those frequencies (state.h). Weights
// depend on beta: all but the plain trapezoid rule are exact at s = c = logit(beta), where every entry of a
// row with p = q lies. Without that, the divergence of nearly equal rows is wrong absolutely, and so is the
// constant that their gradient is a small difference from. docs/one_pass.md, sections 4 and 5.
#pragma once

#include <complex>
#include <span>
#include <vector>

namespace fljsd {

enum class WeightKind {
  trapezoid,          // the trapezoid rule as it is
  exact_at_equality,  // the trapezoid rule scaled so that p = q is exact
  minimax,            // least worst-case error among the rules that are exact at p = q; K <= 24
};
const char* name(WeightKind kind);

// The function that a rule approximates.
enum class Kernel {
  divergence,  // W(s), for D
  student_kl,  // U(s), for kappa and KL(q‖M)
  teacher_kl,  // U(−s), for KL(p‖M)
};
const char* name(Kernel kernel);

struct Quadrature {
  WeightKind kind = WeightKind::trapezoid;
  double beta = 0.5;                             // in (0, 1)
  double period = 0;                             // L = 2π/h, in nats: a rule has this period in s
  std::vector<double> divergence;                // [K+1]
  std::vector<std::complex<double>> student_kl;  // [K+1]
  std::vector<std::complex<double>> teacher_kl;  // [K+1]

  int last_frequency() const { return static_cast<int>(divergence.size()) - 1; }
  double frequency(int k) const;
  // The weights of one kernel as complex numbers.
  std::vector<std::complex<double>> weights(Kernel kernel) const;
};

// The s at which weights for this beta are exact (but for the plain trapezoid rule): logit(beta), or
// ±0.45·period when that is further out. A rule repeats itself after a period, so it cannot follow a kernel
// beyond half of it; for a period of 32 nats this concerns beta < 6e-7 and beta > 1 − 6e-7, where D itself is
// below 1e-5.
double exact_at(double beta, double period);

// Throws std::invalid_argument, one sentence naming field, value and what is allowed.
Quadrature make_quadrature(WeightKind kind, double beta, int last_frequency, double period);

// Σ_k Re[weights_k·e^{2πiks/period}].
double evaluate_rule(std::span<const std::complex<double>> weights, double period, double s);

}  // namespace fljsd
