// SPDX-License-Identifier: Apache-2.0
#include "cuda/batch_kernels.h"

#include <algorithm>

#include "cuda/device_math.cuh"
#include "cuda/ignored.cuh"
#include "cuda/launch.h"

namespace fljsd::cuda {
namespace {

constexpr int threads = 256;

// Grid-stride index and step.
__device__ Index grid_index() {
  return static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ Index grid_step() {
  return static_cast<Index>(gridDim.x) * blockDim.x;
}

unsigned blocks_for(Index work) {
  return static_cast<unsigned>(std::clamp<Index>(ceil_div(work, threads), 1, 4096));
}

// Sum over one block of 1024 threads, the same in every thread; fixed order.
__device__ double block_sum(double value) {
  __shared__ double warp_value[32];
  __syncthreads();
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) warp_value[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_sum(warp_value[threadIdx.x % 32]);
}

// By one block of 1024 threads, the same in every thread.
template <bool with_loss>
__device__ Tally tally_of(const float* token_loss, const Ignored& ignored, Index tokens) {
  double counted = 0, loss = 0;
  for (Index t = threadIdx.x; t < tokens; t += 1024) {
    if (is_ignored(ignored, t)) continue;
    counted += 1;
    if constexpr (with_loss) loss += static_cast<double>(token_loss[t]);
  }
  return {block_sum(counted), with_loss ? block_sum(loss) : 0};
}
__device__ Tally tally_of(const Tally* tallies, Index ranks) {
  Tally sum{0, 0};
  for (Index r = 0; r < ranks; ++r) sum.counted += tallies[r].counted, sum.loss += tallies[r].loss;
  return sum;
}
__device__ DeviceScalars scalars_of(const Tally& tally, double host_factor) {
  return {static_cast<float>(host_factor / fmax(tally.counted, 1.0)), 0.0f, 1.0f};
}
__device__ float loss_of(const Tally& tally, bool batchmean) {
  return static_cast<float>(batchmean ? tally.loss / fmax(tally.counted, 1.0) : tally.loss);
}

// Of one GPU: one block.
__global__ void __launch_bounds__(1024)
    count(Ignored ignored, Index tokens, double host_factor, DeviceScalars* out) {
  const Tally own = tally_of<false>(nullptr, ignored, tokens);
  if (threadIdx.x == 0) *out = scalars_of(own, host_factor);
}
__global__ void __launch_bounds__(1024)
    reduce(const float* token_loss, Ignored ignored, Index tokens, bool batchmean, float* loss) {
  const Tally own = tally_of<true>(token_loss, ignored, tokens);
  if (threadIdx.x == 0) *loss = loss_of(own, batchmean);
}
// Of several: the first by one block on each, the others by one thread.
template <bool with_loss>
__global__ void __launch_bounds__(1024)
    tally(const float* token_loss, Ignored ignored, Index tokens, Tally* out) {
  const Tally own = tally_of<with_loss>(token_loss, ignored, tokens);
  if (threadIdx.x == 0) *out = own;
}
__global__ void combined_factor(const Tally* tallies, Index ranks, double host_factor, DeviceScalars* out) {
  *out = scalars_of(tally_of(tallies, ranks), host_factor);
}
__global__ void combined_loss(const Tally* tallies, Index ranks, bool batchmean, float* loss) {
  *loss = loss_of(tally_of(tallies, ranks), batchmean);
}

__global__ void to_float(const void* data, fljsd_dtype dtype, Index count, float* out) {
  for (Index i = grid_index(); i < count; i += grid_step()) out[i] = load_element(data, dtype, i);
}

// Moves bits, not numbers: NaN payloads stay.
template <class Bits>
__global__ void masked_copy(const Bits* data, Index rows, Index columns, Index ld, Ignored ignored,
                            Bits* out) {
  for (Index r = blockIdx.x; r < rows; r += gridDim.x) {
    const bool skip = is_ignored(ignored, r);
    for (Index c = threadIdx.x; c < columns; c += threads)
      out[r * columns + c] = skip ? Bits{0} : data[r * ld + c];
  }
}

constexpr Index rows_of_partial = 64;

// One thread a column, pieces of 64 tokens dealt to the block rows.
__global__ void column_partials(Dlogits dlogits, Index rows, Index columns, Index partials, float* partial) {
  for (Index p = blockIdx.y; p < partials; p += gridDim.y) {
    const Index begin = p * rows_of_partial, end = min(begin + rows_of_partial, rows);
    for (Index c = grid_index(); c < columns; c += grid_step()) {
      float sum = 0;
      for (Index r = begin; r < end; ++r)
        sum += load_element(dlogits.data, dlogits.dtype, r * dlogits.ld + c);
      partial[p * columns + c] = sum;
    }
  }
}
__global__ void column_totals(const float* partial, Index partials, Index columns, bool accumulate,
                              float* column_sum) {
  for (Index c = grid_index(); c < columns; c += grid_step()) {
    float sum = accumulate ? column_sum[c] : 0;
    for (Index p = 0; p < partials; ++p) sum += partial[p * columns + c];
    column_sum[c] = sum;
  }
}

__device__ float value_of(const Factor& factor) {
  return factor.scalars != nullptr ? factor.scalars->alpha : factor.alpha;
}

__global__ void bias_gradient(const float* column_sum, Index columns, Index all_columns, Factor known,
                              float* out) {
  const float factor = value_of(known);
  for (Index c = grid_index(); c < all_columns; c += grid_step())
    out[c] = c < columns ? column_sum[c] * factor : 0;
}

__global__ void round_rows(const float* sum, Index rows, Index columns, void* out, fljsd_dtype dtype,
                           Index ld, bool vectors) {
  const Index width = vectors ? 4 : 1, per_row = columns / width;
  for (Index i = grid_index(); i < rows * per_row; i += grid_step()) {
    const Index r = i / per_row, c = width * (i % per_row);
    if (vectors) {  // everything is aligned and columns is a multiple of four
      const float4 v = load4(sum + r * columns + c);
      const float g[4] = {v.x, v.y, v.z, v.w};
      store4(static_cast<char*>(out) + r * ld * (dtype == FLJSD_F32 ? 4 : 2), dtype, c, g);
    } else {
      store_element(out, dtype, r * ld + c, sum[r * columns + c]);
    }
  }
}

__global__ void clear_ignored(void* out, fljsd_dtype dtype, Index rows, Index columns, Index ld,
                              Ignored ignored) {
  for (Index r = blockIdx.x; r < rows; r += gridDim.x) {
    if (!is_ignored(ignored, r)) continue;
    for (Index c = threadIdx.x; c < columns; c += threads) store_element(out, dtype, r * ld + c, 0);
  }
}

__global__ void fill(float* out, Index count, float value) {
  for (Index i = grid_index(); i < count; i += grid_step()) out[i] = value;
}

}  // namespace

void launch_count(cudaStream_t stream, Ignored ignored, Index tokens, double host_factor,
                  DeviceScalars* scalars) {
  launch("counting tokens", count, dim3(1), 1024, stream, ignored, tokens, host_factor, scalars);
}

void launch_reduce(cudaStream_t stream, const float* token_loss, Ignored ignored, Index tokens,
                   bool batchmean, float* loss) {
  launch("reducing the loss", reduce, dim3(1), 1024, stream, token_loss, ignored, tokens, batchmean, loss);
}

void launch_tally(cudaStream_t stream, const float* token_loss, Ignored ignored, Index tokens, Tally* out) {
  launch("summing over the tokens", token_loss != nullptr ? tally<true> : tally<false>, dim3(1), 1024, stream,
         token_loss, ignored, tokens, out);
}

void launch_combined_factor(cudaStream_t stream, const Tally* tallies, Index ranks, double host_factor,
                            DeviceScalars* scalars) {
  launch("counting tokens", combined_factor, dim3(1), 1, stream, tallies, ranks, host_factor, scalars);
}

void launch_combined_loss(cudaStream_t stream, const Tally* tallies, Index ranks, bool batchmean,
                          float* loss) {
  launch("reducing the loss", combined_loss, dim3(1), 1, stream, tallies, ranks, batchmean, loss);
}

void launch_to_float(cudaStream_t stream, const void* data, fljsd_dtype dtype, Index count, float* out) {
  launch("converting a bias", to_float, dim3(blocks_for(count)), threads, stream, data, dtype, count, out);
}

void launch_masked_copy(cudaStream_t stream, const void* data, fljsd_dtype dtype, Index rows, Index columns,
                        Index ld, Ignored ignored, void* out) {
  const dim3 grid(static_cast<unsigned>(std::min<Index>(rows, 65536)));
  if (size_of(dtype) == 2) {
    launch("copying the inputs", masked_copy<std::uint16_t>, grid, threads, stream,
           static_cast<const std::uint16_t*>(data), rows, columns, ld, ignored,
           static_cast<std::uint16_t*>(out));
  } else {
    launch("copying the inputs", masked_copy<std::uint32_t>, grid, threads, stream,
           static_cast<const std::uint32_t*>(data), rows, columns, ld, ignored,
           static_cast<std::uint32_t*>(out));
  }
}

void launch_clear_ignored(cudaStream_t stream, Index rows, Index columns, void* out, fljsd_dtype dtype,
                          Index ld, Ignored ignored) {
  launch("clearing ignored tokens", clear_ignored, dim3(static_cast<unsigned>(std::min<Index>(rows, 65536))),
         threads, stream, out, dtype, rows, columns, ld, ignored);
}

void launch_round(cudaStream_t stream, const float* sum, Index rows, Index columns, void* out,
                  fljsd_dtype dtype, Index ld) {
  const auto aligned = [](const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
  };
  const bool vectors = columns % 4 == 0 && ld % 4 == 0 && aligned(sum) && aligned(out);
  launch("rounding a gradient", round_rows, dim3(blocks_for(rows * columns / (vectors ? 4 : 1))), threads,
         stream, sum, rows, columns, out, dtype, ld, vectors);
}

Index column_sum_partials(Index rows) {
  return ceil_div(rows, rows_of_partial);
}

void launch_column_sum(cudaStream_t stream, const Dlogits& dlogits, Index rows, Index columns,
                       bool accumulate, float* partial, float* column_sum) {
  const Index partials = column_sum_partials(rows);
  const unsigned blocks = blocks_for(columns);
  const auto block_rows = static_cast<unsigned>(std::min<Index>(partials, 65535));  // all that a grid has
  launch("summing the bias gradient", column_partials, dim3(blocks, block_rows), threads, stream, dlogits,
         rows, columns, partials, partial);
  launch("summing the bias gradient", column_totals, dim3(blocks), threads, stream, partial, partials,
         columns, accumulate, column_sum);
}

void launch_bias_gradient(cudaStream_t stream, const float* column_sum, Index columns, Index all_columns,
                          Factor factor, float* out) {
  launch("writing the bias gradient", bias_gradient, dim3(blocks_for(all_columns)), threads, stream,
         column_sum, columns, all_columns, factor, out);
}

void launch_fill(cudaStream_t stream, float* out, Index count, float value) {
  launch("filling an output", fill, dim3(blocks_for(count)), threads, stream, out, count, value);
}

}  // namespace fljsd::cuda
