// SPDX-License-Identifier: Apache-2.0
// What ranks do with each other's numbers: records of their shards of the vocabulary become one, and sums
// over their tokens one loss. Everything in a fixed order, so that ranks with the same numbers get the same
// bits.
#pragma once

#include "cuda/batch_kernels.h"
#include "cuda/one_pass_kernels.h"

namespace fljsd::cuda {

// `count` records for each token: record s of token t starts at data + t·token_stride + s·record_stride.
struct RecordGrid {
  const float* data = nullptr;
  Index count = 1;
  Index token_stride = 0;
  Index record_stride = 0;
};

// One record for each token, packed, into `out` [tokens, state_floats]: the sum of its records, or an empty
// one for an ignored token.
void launch_merge_records(cudaStream_t stream, Divergence kind, Basis basis, const Mixture& mixture,
                          float phase_step, const RecordGrid& records, Index tokens, Ignored ignored,
                          float* out);

// Empty records for `tokens` tokens: those of a shard in which no entry exists.
void launch_empty_records(cudaStream_t stream, Divergence kind, Basis basis, Index tokens, float* out);

// A rank's tokens in two numbers.
struct Tally {
  double counted;  // tokens that are not ignored
  double loss;     // Σ of their losses; 0 while there are none
};
// token_loss may be null: loss 0. Summed in double, in a fixed order.
void launch_tally(cudaStream_t stream, const float* token_loss, Ignored ignored, Index tokens, Tally* out);

// loss = Σ loss over the ranks, divided by max(Σ counted, 1) for batchmean.
void launch_combined_loss(cudaStream_t stream, const Tally* tallies, Index ranks, bool batchmean,
                          float* loss);

// scalars as of launch_count(), with the tokens of all ranks.
void launch_combined_factor(cudaStream_t stream, const Tally* tallies, Index ranks, double host_factor,
                            DeviceScalars* scalars);

}  // namespace fljsd::cuda
