// SPDX-License-Identifier: Apache-2.0
// What follows the two exact sweeps (exact_sums.cuh): one thread a token.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/one_pass_kernels.h"

namespace fljsd::cuda {
struct RowReference;  // row_divergence.cuh
}

namespace fljsd::cuda::hopper {

constexpr Index row_reference_bytes = 24;
// Of the token, in an array for all: the type is complete for device code only.
inline RowReference* row_reference_at(RowReference* references, Index token) {
  return reinterpret_cast<RowReference*>(reinterpret_cast<std::byte*>(references) +
                                         token * row_reference_bytes);
}

// references [rows] from records [rows, slots, normaliser_record] of the first sweep. NaN in log2_sum_x says
// that the token has no distribution.
void launch_row_references(cudaStream_t stream, const Mixture& mixture, const float* records, Index slots,
                           Index rows, RowReference* references);

// token_loss [rows]: D in nats from records [rows, slots] of the second sweep; 0 for ignored tokens, NaN for
// tokens without a distribution.
void launch_exact_losses(cudaStream_t stream, const float* records, Index slots, Index rows,
                         const RowReference* references, Ignored ignored, float* token_loss);

}  // namespace fljsd::cuda::hopper
