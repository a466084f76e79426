// SPDX-License-Identifier: Apache-2.0
// The one-pass statistics of a plan: which sums its beta needs, and what turns them into losses. Records of
// sums come from a sweep (tiled_sweep.h, fused_sweep.h) and may be merged (shard_kernels.h) before they end
// here.
#pragma once

#include "cuda/one_pass_kernels.h"
#include "cuda/one_pass_weights.h"

namespace fljsd::cuda {

// Frequencies that a pass needs.
constexpr Basis basis_of(fljsd_pass pass) {
  return pass == FLJSD_FORWARD ? Basis::twelve : Basis::twenty_two;
}

struct OnePassStatistics {
  Divergence kind = Divergence::mixture;
  Mixture mixture{};
  OnePassWeights weights[2];  // by pass; of the passes that the plan has, for 0 < beta < 1

  OnePassStatistics() = default;
  explicit OnePassStatistics(const Settings& s)
      : kind(divergence_kind(s.beta)), mixture(make_mixture(s.beta, s.temperature)) {
    if (kind != Divergence::mixture) return;
    for (const fljsd_pass pass : {FLJSD_FORWARD, FLJSD_FORWARD_BACKWARD}) {
      if (s.has(pass)) weights[pass] = make_one_pass_weights(s.beta, basis_of(pass));
    }
  }

  // Of one record.
  Index record_floats(fljsd_pass pass) const { return state_floats(kind, basis_of(pass)); }

  // See launch_finish().
  void finish(cudaStream_t stream, fljsd_pass pass, const OnePassState& state, Index rows, Ignored ignored,
              float* token_loss, RowConstants* constants) const {
    launch_finish(stream, kind, basis_of(pass), mixture, weights[pass], state, rows, ignored, token_loss,
                  constants);
  }
};

}  // namespace fljsd::cuda
