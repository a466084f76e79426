// SPDX-License-Identifier: Apache-2.0
// An upper bound of Σ_v |dD/dx_v| from a row's constants, and what counts as a large entry beside it.
//
// With kappa: dD/dx_v = (1−beta)·q_v·(kappa − l_v), l_v >= 0 and Σ q·l = kappa, so Σ|.| <= (1−beta)·2·kappa.
//
// With k = KL(q‖M): dD/dx_v = −(1−beta)·q_v·(k + f_v), f = log(M/q). Σ q·f⁺ <= Σ (M − q)⁺ <= sqrt(k/2) by
// e^f − 1 >= f and Pinsker's inequality, and Σ q·f = −k, so Σ q|f| <= k + sqrt(2k): Σ|.| <= (1−beta)·(2k +
// sqrt(2k)).
//
// At beta = 0, Σ|q − p| <= 2. At beta = 1 there is no bound in terms of the constants.
#pragma once

#include "cuda/row_divergence.cuh"

namespace fljsd::cuda {

// The constants of a token with a distribution. Infinite for beta = 1.
template <Divergence kind>
FLJSD_HOST_DEVICE float gradient_norm_bound(const RowConstants& row, const Mixture& m) {
  if constexpr (kind == Divergence::teacher_kl) return 2;
  if constexpr (kind == Divergence::student_kl) return infinity();
  // Constants of one pass may be too small: by 2e-3 of kappa and little more (the percent of
  // residual_threshold() and the 1e-7 cover it), and KL by the error of quadrature and sums
  // (one_pass_weights.h, one_pass_moments.cuh), 3.5e-6 over 1−beta.
  const float constant = m.one_minus_beta * fabsf(row.constant) * ln2;
  if (row.uses_kappa > 0) return 2 * (constant + 1e-7f);
  const float most = constant + 3.5e-6f;
  return 2 * most + sqrtf(2 * m.one_minus_beta * most);
}

// At most 16 entries of a row have |dD/dx_v| >= this; a percent more than the bound, for rounding.
template <Divergence kind>
FLJSD_HOST_DEVICE float residual_threshold(const RowConstants& row, const Mixture& m) {
  return gradient_norm_bound<kind>(row, m) * (1.01f / 16);
}

}  // namespace fljsd::cuda
