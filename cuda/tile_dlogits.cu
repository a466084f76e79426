// SPDX-License-Identifier: Apache-2.0
// The second sweep: dlogits of a tile of logits from row constants, wherever those come from.
#include "cuda/device_math.cuh"
#include "cuda/launch.h"
#include "cuda/one_pass_kernels.h"
#include "cuda/rounding_residuals.cuh"
#include "cuda/row_divergence.cuh"

namespace fljsd::cuda {
namespace {

constexpr int dlogits_threads = 256;

// One block a row of the tile.
template <Divergence kind, bool small_share>
__global__ void __launch_bounds__(dlogits_threads)
    tile_dlogits(const __grid_constant__ LogitTile tile, const __grid_constant__ Mixture m,
                 const RowConstants* constants, const __grid_constant__ Dlogits dlogits,
                 const __grid_constant__ DlogitSums sums) {
  const Index row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x), columns = static_cast<int>(tile.columns);
  const RowConstants c = constants[row];
  const float* student = tile.student + row * tile.ld;
  const float* teacher = tile.teacher + row * tile.ld;
  float sum = 0;
  char* out = static_cast<char*>(dlogits.data) + row * dlogits.ld * (dlogits.dtype == FLJSD_F32 ? 4 : 2);
  if (c.uses_kappa < 0 || !(c.constant == c.constant)) {
    const float value = c.uses_kappa < 0 ? 0 : nan_value();
    const float g[4] = {value, value, value, value};
    for (int column = 4 * thread; column < columns; column += 4 * dlogits_threads)
      store4(out, dlogits.dtype, column, g);
  } else {
    constexpr int step = 4 * dlogits_threads;
    const ResidualFilter residuals = ResidualFilter::make<kind>(dlogits.residuals, row, c, m, dlogits.factor);
    for (int column = 4 * thread; column < columns; column += 2 * step) {
      // Two vectors of four, loaded before either is used.
      float4 x4[2], y4[2];
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int at = column + part * step;
        if (at < columns) x4[part] = load4(student + at), y4[part] = load4(teacher + at);
      }
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int at = column + part * step;
        if (at >= columns) break;
        float x[4] = {x4[part].x, x4[part].y, x4[part].z, x4[part].w};
        float y[4] = {y4[part].x, y4[part].y, y4[part].z, y4[part].w};
        float g[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (at + e >= columns) x[e] = y[e] = -infinity();
          if (tile.student_bias != nullptr && at + e < columns) x[e] += tile.student_bias[at + e];
          if (tile.teacher_bias != nullptr && at + e < columns) y[e] += tile.teacher_bias[at + e];
        }
        gradient<kind, small_share, 4>(x, y, c, m, dlogits.factor, g);
        store4(out, dlogits.dtype, at, g);
        residuals.look_at(at, g);
        if constexpr (kind == Divergence::mixture) sum += (g[0] + g[1]) + (g[2] + g[3]);
      }
    }
  }
  if constexpr (kind == Divergence::mixture) {
    if (sums.data == nullptr) return;
    __shared__ float warp_sums[dlogits_threads / 32];
    sum = warp_sum(sum);
    if (thread % 32 == 0) warp_sums[thread / 32] = sum;
    __syncthreads();
    if (thread != 0) return;
    sum = sums.first ? 0 : sums.data[row];
    for (const float part : warp_sums) sum += part;
    sums.data[row] = sum;
  }
}

}  // namespace

Index dlogit_sum_additions(Index columns, Index tiles) {
  return ceil_div(columns, 4 * dlogits_threads) + 2 + 5 + dlogits_threads / 32 * tiles;
}

void launch_tile_dlogits(cudaStream_t stream, Divergence kind, const Mixture& mixture, const LogitTile& tile,
                         const RowConstants* constants, const Dlogits& dlogits, const DlogitSums& sums) {
  static_assert(sizeof(RowConstants) == row_constants_bytes);
  const auto kernel = kind == Divergence::teacher_kl   ? tile_dlogits<Divergence::teacher_kl, false>
                      : kind == Divergence::student_kl ? tile_dlogits<Divergence::student_kl, false>
                      : mixture.small_share            ? tile_dlogits<Divergence::mixture, true>
                                                       : tile_dlogits<Divergence::mixture, false>;
  launch("launching the gradient of a tile", kernel, grid_of(tile.rows), dlogits_threads, stream, tile,
         mixture, constants, dlogits, sums);
}

}  // namespace fljsd::cuda
