// SPDX-License-Identifier: Apache-2.0
// Weights that turn Chernoff sums into the divergence. (Interface published first; see docs/one_pass.md.)
#pragma once

#include <complex>
#include <vector>

namespace fljsd {

enum class WeightKind {
  trapezoid,          // the trapezoid rule as it is
  exact_at_equality,  // the trapezoid rule scaled so that p = q is exact
  minimax,            // least worst-case error among the rules that are exact at p = q
};
const char* name(WeightKind kind);

// A rule on the frequencies w_k = k·2π/period, k = 0..K, for one beta:
//   W(s) ≈ Σ_k Re[divergence_k·e^{i w_k s}], likewise U(s) and U(−s).
struct Quadrature {
  double beta = 0.5;
  double period = 32;
  std::vector<double> divergence;
  std::vector<std::complex<double>> student_kl;
  std::vector<std::complex<double>> teacher_kl;
};

}  // namespace fljsd
