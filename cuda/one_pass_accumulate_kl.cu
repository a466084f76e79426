// SPDX-License-Identifier: Apache-2.0
// The forward sweep for beta = 0 and 1, where the divergence is a KL and needs three sums.
#include "cuda/launch.h"
#include "cuda/one_pass_moments.cuh"
#include "cuda/one_pass_slice.cuh"

namespace fljsd::cuda {
namespace {

template <Divergence kind>
__global__ void __launch_bounds__(32 * warps_per_block)
    accumulate_kl(const __grid_constant__ LogitTile tile, OnePassState state, float log2_scale, bool first) {
  constexpr bool teacher_first = kind == Divergence::teacher_kl;
  const Slice slice(tile, state, kl_record);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (slice.row >= tile.rows || is_ignored(tile.ignored, slice.row)) return;
  const float* student = tile.student + slice.row * tile.ld + 4 * lane;
  const float* teacher = tile.teacher + slice.row * tile.ld + 4 * lane;
  References ref{-largest_float, -largest_float};
  float hi[3] = {}, lo[3] = {};
  if (!first) {
#pragma unroll
    for (int i = 0; i < 3; ++i) hi[i] = slice.record[i], lo[i] = slice.record[3 + i];
    ref = {slice.record[6], slice.record[7]};
  }
  float sum[3] = {};
  int batches = 0;
  for (int column = slice.begin;; column += 256) {
    const bool done = column >= slice.end;
    TileBatch b;
    float max_x = 0, max_y = 0;
    if (!done) {
      const int left = slice.end - column - 4 * lane;
      b.load(student + column, teacher + column, left, column + 256 <= slice.end);
      if (tile.student_bias != nullptr) TileBatch::add_bias(b.x, tile.student_bias + column + 4 * lane, left);
      if (tile.teacher_bias != nullptr) TileBatch::add_bias(b.y, tile.teacher_bias + column + 4 * lane, left);
      batch_max(b, max_x, max_y);
    }
    const bool covered = done || ref.cover(max_x, max_y, log2_scale);
    if (done || !covered || batches == 8) {
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        add_compensated(hi[i], lo[i], warp_sum(sum[i]));
        sum[i] = 0;
      }
      if (done) break;
      batches = 0;
    }
    if (!covered) {
      const References raised = ref.raised(max_x, max_y, log2_scale);
      const double dx = static_cast<double>(raised.x) - ref.x, dy = static_cast<double>(raised.y) - ref.y;
      const double first_sum =
          teacher_first ? static_cast<double>(hi[1]) + lo[1] : static_cast<double>(hi[0]) + lo[0];
      const double first_factor = exp2(-(teacher_first ? dy : dx));
      // first − second falls by the difference of the two rises
      double n = static_cast<double>(hi[2]) + lo[2];
      if (first_sum > 0 && fabsf(hi[2]) < infinity()) n -= (teacher_first ? dy - dx : dx - dy) * first_sum;
      if (fabsf(hi[2]) < infinity()) n *= first_factor;
      hi[2] = static_cast<float>(n);
      lo[2] = fabsf(hi[2]) < infinity() ? static_cast<float>(n - hi[2]) : 0;
      const auto factor_x = static_cast<float>(exp2(-dx)), factor_y = static_cast<float>(exp2(-dy));
      hi[0] *= factor_x, lo[0] *= factor_x;
      hi[1] *= factor_y, lo[1] *= factor_y;
      ref = raised;
    }
    ++batches;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float a = fmaf(b.x[i], log2_scale, -ref.x), c = fmaf(b.y[i], log2_scale, -ref.y);
      const float ea = exp2_fast(a), ec = exp2_fast(c);
      sum[0] += ea;
      sum[1] += ec;
      const float of_first = teacher_first ? c : a, difference = teacher_first ? c - a : a - c;
      // Probability 0 in first: nothing, whatever second is. Only in second: infinity, however small first
      // is.
      const float term = difference == infinity() ? difference : (teacher_first ? ec : ea) * difference;
      sum[2] += of_first == -infinity() ? 0 : term;
    }
  }
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < 3; ++i) slice.record[i] = hi[i], slice.record[3 + i] = lo[i];
    slice.record[6] = ref.x;
    slice.record[7] = ref.y;
  }
}

}  // namespace

void launch_accumulate_kl(cudaStream_t stream, Divergence kind, const Mixture& mixture, const LogitTile& tile,
                          const OnePassState& state, bool first) {
  launch("launching the one-pass statistics",
         kind == Divergence::teacher_kl ? accumulate_kl<Divergence::teacher_kl>
                                        : accumulate_kl<Divergence::student_kl>,
         grid_of(ceil_div(tile.rows * state.slices, warps_per_block)), 32 * warps_per_block, stream, tile,
         state, mixture.log2_scale, first);
}

}  // namespace fljsd::cuda
