// SPDX-License-Identifier: Apache-2.0
// The forward sweep for 0 < beta < 1: a tile of logits joins the records of its tokens. one_pass_moments.cuh
// says what is summed.
//
// A warp adds a chunk of its slice to moments in registers, then empties them into the record. It trusts what
// nearly always holds: that logits are finite, and none lies far above the row's references. The sums tell
// afterwards whether that was so (Moments::are_good). If not, the warp goes back to the chunk's first entry
// and is careful for the rest of the tile: it looks for each batch's maxima, raises references where it must,
// and clamps. So it is until a row has references, for the few entries at the end of a slice, and where there
// are biases.
#include "cuda/ignored.cuh"
#include "cuda/launch.h"
#include "cuda/one_pass_warp_record.cuh"

namespace fljsd::cuda {
namespace {

// 128 registers a thread: with fewer the compiler loads the next batch too late.
constexpr int blocks_per_multiprocessor = 4;
// Batches of 8 terms a lane that moments take: 208 terms. (A tile of 12544 entries in two slices is 25
// batches.)
constexpr int most_batches = 26;
// Half log2 units that a careful warp lets a logit lie above the reference: so close to the largest logit of
// a row's first chunk that hardly any later one leaves the room which trust needs.
constexpr float careful_room = 4;

template <Basis basis>
__global__ void __launch_bounds__(32 * slice_warps, blocks_per_multiprocessor)
    accumulate(const __grid_constant__ LogitTile tile, OnePassState state, float log2_scale, float phase_step,
               bool first) {
  using M = Moments<basis>;
  using Record = MomentRecord<M>;
  const Slice slice(tile, state, Record::floats);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (slice.row >= tile.rows || is_ignored(tile.ignored, slice.row)) return;
  const float* student = tile.student + slice.row * tile.ld + 4 * lane;
  const float* teacher = tile.teacher + slice.row * tile.ld + 4 * lane;
  const float scale = 0.5f * log2_scale;
  __shared__ float scratch[slice_warps][Record::floats];
  WarpRecord<M> record(scratch[threadIdx.x / 32], lane);
  if (!first) record.load(slice.record);

  M moments;
  moments.clear();
  const auto add = [&](float x, float y, bool clamp) {
    const float a = fmaf(x, scale, -record.ref.x.units), b = fmaf(y, scale, -record.ref.y.units);
    clamp ? moments.add(a, b, phase_step) : moments.add_finite(a, b, phase_step);
  };
  const auto empty_moments = [&] {
    record.add(moments);
    moments.clear();
  };
  constexpr int chunk = most_batches * batch_columns;
  const bool has_bias = tile.student_bias != nullptr || tile.teacher_bias != nullptr;
  bool failed = false;
  for (int column = slice.begin; column < slice.end;) {
    const int begin = column, end = min(slice.end, begin + chunk);
    if (!failed && !has_bias && record.is_ordinary() && begin + batch_columns <= end) {
      TileBatch b;
      b.load(student + column, teacher + column);
#pragma unroll 1
      for (; column + batch_columns <= end; column += batch_columns) {
        // Half of the next batch is loaded as soon as half of this one is used; after the last one, itself
        // again.
        const int next = column + 2 * batch_columns <= end ? column + batch_columns : column;
#pragma unroll
        for (int part = 0; part < 2; ++part) {
#pragma unroll
          for (int i = 4 * part; i < 4 * part + 4; ++i) add(b.x[i], b.y[i], false);
          b.load_part(part, student + next, teacher + next);
        }
      }
      if (__any_sync(all_lanes, !moments.are_good())) {
        failed = true;
        moments.clear();
        column = begin;
      }
    }
#pragma unroll 1
    for (; column < end; column += batch_columns) {
      const int left = slice.end - column - 4 * lane;
      TileBatch b;
      b.load_some(student + column, teacher + column, left);
      if (tile.student_bias != nullptr) TileBatch::add_bias(b.x, tile.student_bias + column + 4 * lane, left);
      if (tile.teacher_bias != nullptr) TileBatch::add_bias(b.y, tile.teacher_bias + column + 4 * lane, left);
      const ModelReferences& ref = record.ref;
      float max_x, max_y;
      batch_max(b, max_x, max_y);
      if (__any_sync(all_lanes,
                     ref.x.above(max_x, scale) > careful_room || ref.y.above(max_y, scale) > careful_room)) {
        empty_moments();
        record.raise({ref.x.raised(warp_max(max_x), scale), ref.y.raised(warp_max(max_y), scale)}, scale,
                     phase_step);
      }
      if (ref.x.base != 0 || ref.y.base != 0) b.subtract(ref.x.base, ref.y.base);
#pragma unroll
      for (int i = 0; i < 8; ++i) add(b.x[i], b.y[i], true);
    }
    empty_moments();
  }
  record.store(slice.record);
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
         grid_of(ceil_div(tile.rows * state.slices, slice_warps)), 32 * slice_warps, stream, tile, state,
         mixture.log2_scale, phase_step, first);
}

}  // namespace fljsd::cuda
