// SPDX-License-Identifier: Apache-2.0
// How far the dlogits of a row may add up to something else than 0, for 0 < beta < 1 and right statistics.
#pragma once

#include "cuda/gradient_norm.cuh"

namespace fljsd::cuda {

// In units of dD/dx. (1−beta)·constant errs by 2e-6 for the rule (one_pass_weights.h) and 1.5e-6 for its sums
// (one_pass_moments.cuh); all log ratios may be shifted alike by 2^-21 (row_kernels.cu), with as much again
// for safety, which moves Σ q·l by as much at most; a dlogit is good to 3e-6 of q·(|constant| + |log ratio|),
// whose sum is at most the bound of gradient_norm.cuh; and so is what `additions` one after the other are
// rounded by.
FLJSD_HOST_DEVICE float certificate_tolerance(const RowConstants& row, const Mixture& m, float additions) {
  const float norm = gradient_norm_bound<Divergence::mixture>(row, m);
  return 3.5e-6f + m.one_minus_beta * 0x1p-20f + (3e-6f + additions * 0x1p-24f) * norm;
}

}  // namespace fljsd::cuda
