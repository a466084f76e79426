// SPDX-License-Identifier: Apache-2.0
// What ranks do with the records of each other's shards of the vocabulary: they become one. Everything in a
// fixed order, so that ranks with the same records get the same bits.
#pragma once

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

}  // namespace fljsd::cuda
