// SPDX-License-Identifier: Apache-2.0
#include "cuda/mixture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace fljsd::cuda {

Divergence divergence_kind(double beta) {
  return beta == 0 ? Divergence::teacher_kl : beta == 1 ? Divergence::student_kl : Divergence::mixture;
}

Mixture make_mixture(double beta, double temperature) {
  Mixture m{};
  const double gamma = 1 - beta;
  m.scale = static_cast<float>(1 / temperature);
  m.log2_scale = static_cast<float>(std::numbers::log2e / temperature);
  m.beta = static_cast<float>(beta);
  m.one_minus_beta = static_cast<float>(gamma);
  const double share[2] = {gamma, beta};
  for (int up = 0; up < 2; ++up) {
    m.larger[up] = static_cast<float>(share[up]);
    m.other[up] = static_cast<float>(share[1 - up]);
    m.ratio[up] = static_cast<float>(share[1 - up] / share[up]);
    m.log2_larger[up] =
        static_cast<float>((up == 0 ? std::log1p(-beta) : std::log(beta)) * std::numbers::log2e);
  }
  m.logit_bits[0] = 0;
  m.logit_bits[1] = static_cast<float>((std::log(beta) - std::log1p(-beta)) * std::numbers::log2e);
  // |other·(e − 1)| >= 0.22·other where |d| >= 1/4: above 1/16 if other > 0.29
  m.small_share = std::min(beta, gamma) < 0.29;

  // Power series in d, order 0..8. w = M/q = 1 + beta·(e^d − 1), log w by n·w₀·l_n = n·w_n − Σ_{0<k<n}
  // k·l_k·w_{n−k}.
  constexpr int order = 8;
  std::array<double, order + 1> exponential{}, w{}, log_w{};
  double inverse_factorial = 1;
  for (int n = 0; n <= order; ++n) {
    if (n > 0) inverse_factorial /= n;
    const auto i = static_cast<std::size_t>(n);
    exponential[i] = inverse_factorial;
    w[i] = n == 0 ? 1 : beta * inverse_factorial;
  }
  for (std::size_t n = 1; n <= order; ++n) {
    double sum = static_cast<double>(n) * w[n];
    for (std::size_t k = 1; k < n; ++k) sum -= static_cast<double>(k) * log_w[k] * w[n - k];
    log_w[n] = sum / static_cast<double>(n);
  }
  for (std::size_t n = 2; n < 8; ++n) {
    double term;
    if (beta == 0) {
      term = static_cast<double>(n - 1) * exponential[n];  // ψ(d) = d·e^d − (e^d − 1)
    } else if (beta == 1) {
      term = exponential[n];  // e^d − 1 − d
    } else {
      term = beta * exponential[n - 1];  // beta·d·e^d − w·log w
      for (std::size_t k = 1; k <= n; ++k) term -= log_w[k] * w[n - k];
    }
    m.divergence_series[n - 2] = static_cast<float>(term * std::numbers::log2e);
    m.kl_series[n - 2] =
        static_cast<float>((beta * exponential[n] - log_w[n]) * std::numbers::log2e);  // (w − 1) − log w
  }
  for (std::size_t n = 1; n <= 7; ++n)
    m.log_series[n - 1] = static_cast<float>(log_w[n] * std::numbers::log2e);
  return m;
}

}  // namespace fljsd::cuda
