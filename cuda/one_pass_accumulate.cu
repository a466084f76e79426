// SPDX-License-Identifier: Apache-2.0
// The forward sweep for 0 < beta < 1: a tile of logits joins the records of its tokens. one_pass_moments.cuh
// says what is summed.
#include "cuda/launch.h"
#include "cuda/one_pass_finish.cuh"
#include "cuda/one_pass_slice.cuh"

namespace fljsd::cuda {
namespace {

template <Basis basis>
__global__ void __launch_bounds__(32 * warps_per_block, 4)
    accumulate(const __grid_constant__ LogitTile tile, OnePassState state, float log2_scale, float phase_step,
               bool first) {
  using M = Moments<basis>;
  const Slice slice(tile, state, 2 * M::stride);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (slice.row >= tile.rows || is_ignored(tile.ignored, slice.row)) return;
  const float* student = tile.student + slice.row * tile.ld + 4 * lane;
  const float* teacher = tile.teacher + slice.row * tile.ld + 4 * lane;
  const float scale = 0.5f * log2_scale;
  __shared__ float scratch[warps_per_block][2 * M::stride];
  float* mine = scratch[threadIdx.x / 32];

  // The record: lane i holds values i and i + 32, each as hi + lo.
  float hi[M::per_lane], lo[M::per_lane];
  RowReferences ref{Reference::empty(), Reference::empty()};
  if (first) {
#pragma unroll
    for (int r = 0; r < M::per_lane; ++r) hi[r] = lo[r] = 0;
  } else {
    ref.x = {slice.record[M::values], slice.record[M::values + 1]};
    ref.y = {slice.record[M::values + 2], slice.record[M::values + 3]};
#pragma unroll
    for (int r = 0; r < M::per_lane; ++r) {
      const int i = lane + 32 * r;
      hi[r] = i < M::values ? slice.record[i] : 0;
      lo[r] = i < M::values ? slice.record[M::stride + i] : 0;
    }
  }

  M moments;
  moments.clear();
  // Of 8 terms a lane. Emptying the moments takes about a thousand instructions of a warp.
  constexpr int most_batches = 24;
  int batches = 0;
  // The next batch is on its way while one is worked on.
  TileBatch b, next;
  const auto load = [&](int column) {
    if (column < slice.end) {
      next.load(student + column, teacher + column, slice.end - column - 4 * lane, column + 256 <= slice.end);
    }
  };
  load(slice.begin);
  for (int column = slice.begin;; column += 256) {
    const bool done = column >= slice.end;
    b = next;
    load(column + 256);
    float max_x = 0, max_y = 0;
    if (!done) {
      const int left = slice.end - column - 4 * lane;
      if (tile.student_bias != nullptr) TileBatch::add_bias(b.x, tile.student_bias + column + 4 * lane, left);
      if (tile.teacher_bias != nullptr) TileBatch::add_bias(b.y, tile.teacher_bias + column + 4 * lane, left);
      batch_max(b, max_x, max_y);
    }
    const bool covered = done || __all_sync(all_lanes, !(ref.x.above(max_x, scale) > headroom) &&
                                                           !(ref.y.above(max_y, scale) > headroom));
    if (done || !covered || batches == most_batches) {
      // Empty the moments into the record.
      reduce_scatter<M::count, 16>(moments.m, lane, 0, M::count, mine);
      __syncwarp();
#pragma unroll
      for (int r = 0; r < M::per_lane; ++r) {
        const int i = lane + 32 * r;
        if (i < M::values) add_compensated(hi[r], lo[r], M::value(mine, i));
      }
      __syncwarp();
      if (done) break;
      moments.clear();
      batches = 0;
    }
    if (!covered) {
      const RowReferences raised{ref.x.raised(warp_max(max_x), scale), ref.y.raised(warp_max(max_y), scale)};
      const Turn turn(ref, raised, scale, phase_step);
#pragma unroll
      for (int r = 0; r < M::per_lane; ++r) {
        const int i = lane + 32 * r;
        if (i < M::values) mine[i] = hi[r], mine[M::stride + i] = lo[r];
      }
      __syncwarp();
#pragma unroll
      for (int r = 0; r < M::per_lane; ++r) {
        const int i = lane + 32 * r;
        if (i >= M::values) continue;
        const double turned =
            turn.value<M>(i, [&](int at) { return static_cast<double>(mine[at]) + mine[M::stride + at]; });
        hi[r] = static_cast<float>(turned);
        lo[r] = static_cast<float>(turned - hi[r]);
      }
      __syncwarp();
      ref = raised;
    }
    ++batches;
    if (ref.x.base != 0 || ref.y.base != 0) b.subtract(ref.x.base, ref.y.base);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      moments.add(fmaf(b.x[i], scale, -ref.x.units), fmaf(b.y[i], scale, -ref.y.units), phase_step);
    }
  }
#pragma unroll
  for (int r = 0; r < M::per_lane; ++r) {
    const int i = lane + 32 * r;
    if (i < M::values) {
      slice.record[i] = hi[r];
      slice.record[M::stride + i] = lo[r];
    }
  }
  if (lane != 0) return;
  slice.record[M::values] = ref.x.base, slice.record[M::values + 1] = ref.x.units;
  slice.record[M::values + 2] = ref.y.base, slice.record[M::values + 3] = ref.y.units;
}

}  // namespace

void launch_accumulate(cudaStream_t stream, Divergence kind, Basis basis, const Mixture& mixture,
                       float phase_step, const LogitTile& tile, const OnePassState& state, bool first) {
  if (kind != Divergence::mixture) {
    launch_accumulate_kl(stream, kind, mixture, tile, state, first);
    return;
  }
  launch("launching the one-pass statistics",
         basis == Basis::twelve ? accumulate<Basis::twelve> : accumulate<Basis::twenty_two>,
         grid_of(ceil_div(tile.rows * state.slices, warps_per_block)), 32 * warps_per_block, stream, tile,
         state, mixture.log2_scale, phase_step, first);
}

}  // namespace fljsd::cuda
