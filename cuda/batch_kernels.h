// SPDX-License-Identifier: Apache-2.0
// What happens once per batch, around the stages' main work: counting tokens, preparing inputs, reducing
// losses, finishing gradients.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/row_kernels.h"
#include "cuda/settings.h"

namespace fljsd::cuda {

// Factors of matrix products that are only known on the device.
struct DeviceScalars {
  float alpha;  // factor of a gradient product: host_factor / number of counted tokens
  float zero;
  float one;
};

// Counts the tokens that are not ignored. scalars->alpha = host_factor / max(count, 1).
void launch_count(cudaStream_t stream, Ignored ignored, Index tokens, double host_factor,
                  DeviceScalars* scalars);

// loss = Σ token_loss over counted tokens, divided by their number for batchmean; summed in double, in a
// fixed order.
void launch_reduce(cudaStream_t stream, const float* token_loss, Ignored ignored, Index tokens,
                   bool batchmean, float* loss);

// The same for a batch of several ranks: each tallies its own tokens, and what they have gathered is combined
// in the order of ranks, so that all get the same bits.
struct Tally {
  double counted;  // tokens that are not ignored
  double loss;     // Σ of their losses; 0 while there are none
};
// token_loss may be null: loss 0.
void launch_tally(cudaStream_t stream, const float* token_loss, Ignored ignored, Index tokens, Tally* out);
void launch_combined_factor(cudaStream_t stream, const Tally* tallies, Index ranks, double host_factor,
                            DeviceScalars* scalars);
void launch_combined_loss(cudaStream_t stream, const Tally* tallies, Index ranks, bool batchmean,
                          float* loss);

// out[i] = data[i] for i < count, as fp32.
void launch_to_float(cudaStream_t stream, const void* data, fljsd_dtype dtype, Index count, float* out);

// A copy of [rows, columns] with zeros in the rows of ignored tokens; packed.
void launch_masked_copy(cudaStream_t stream, const void* data, fljsd_dtype dtype, Index rows, Index columns,
                        Index ld, Ignored ignored, void* out);

// A factor that is known on the host, or, if `scalars` is not null, on the device.
struct Factor {
  float alpha = 1;
  const DeviceScalars* scalars = nullptr;
};

// Zeros in the rows of ignored tokens: a product gives NaN there when a weight is NaN or infinite.
void launch_clear_ignored(cudaStream_t stream, Index rows, Index columns, void* out, fljsd_dtype dtype,
                          Index ld, Ignored ignored);

// out[r, c] = sum[r, c] rounded once; sum is packed fp32.
void launch_round(cudaStream_t stream, const float* sum, Index rows, Index columns, void* out,
                  fljsd_dtype dtype, Index ld);

// column_sum[c] (+)= Σ_r dlogits[r, c], in fp32 and a fixed order. partial: column_sum_partials(rows) *
// columns floats.
Index column_sum_partials(Index rows);
void launch_column_sum(cudaStream_t stream, const Dlogits& dlogits, Index rows, Index columns,
                       bool accumulate, float* partial, float* column_sum);

// out[c] = column_sum[c] · alpha for c < columns and 0 for columns <= c < all_columns; alpha on host or
// device.
void launch_bias_gradient(cudaStream_t stream, const float* column_sum, Index columns, Index all_columns,
                          Factor factor, float* out);

// Sets `count` floats.
void launch_fill(cudaStream_t stream, float* out, Index count, float value);

}  // namespace fljsd::cuda
