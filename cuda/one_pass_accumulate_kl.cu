// SPDX-License-Identifier: Apache-2.0
// The forward sweep for beta = 0 and 1, where the divergence is a KL and needs three sums.
#include "cuda/ignored.cuh"
#include "cuda/launch.h"
#include "cuda/one_pass_record.cuh"
#include "cuda/one_pass_slice.cuh"

namespace fljsd::cuda {
namespace {

template <Divergence kind>
__global__ void __launch_bounds__(32 * slice_warps)
    accumulate_kl(const __grid_constant__ LogitTile tile, OnePassState state, float log2_scale, bool first) {
  constexpr bool teacher_first = kind == Divergence::teacher_kl;
  using Record = EndpointRecord;
  const Slice slice(tile, state, Record::floats);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (slice.row >= tile.rows || is_ignored(tile.ignored, slice.row)) return;
  const float* student = tile.student + slice.row * tile.ld + 4 * lane;
  const float* teacher = tile.teacher + slice.row * tile.ld + 4 * lane;
  KlReference ref = KlReference::empty();
  float hi[Record::sums] = {}, lo[Record::sums] = {};
  if (!first) {
#pragma unroll
    for (int i = 0; i < Record::sums; ++i) hi[i] = slice.record[i], lo[i] = slice.record[Record::lo + i];
    ref = Record::reference(slice.record);
  }
  const float room = kl_headroom / log2_scale;
  KlTerms terms{0, 0, 0};
  int batches = 0;
  for (int column = slice.begin;; column += batch_columns) {
    const bool done = column >= slice.end;
    TileBatch b;
    float max_x = 0, max_y = 0;
    if (!done) {
      const int left = slice.end - column - 4 * lane;
      if (column + batch_columns <= slice.end) {
        b.load(student + column, teacher + column);
      } else {
        b.load_some(student + column, teacher + column, left);
      }
      if (tile.student_bias != nullptr) TileBatch::add_bias(b.x, tile.student_bias + column + 4 * lane, left);
      if (tile.teacher_bias != nullptr) TileBatch::add_bias(b.y, tile.teacher_bias + column + 4 * lane, left);
      batch_max(b, max_x, max_y);
    }
    const float max_first = teacher_first ? max_y : max_x, max_second = teacher_first ? max_x : max_y;
    const float(&x)[8] = teacher_first ? b.y : b.x;  // of first
    const float(&y)[8] = teacher_first ? b.x : b.y;
    const bool covered =
        done || __all_sync(all_lanes, !(max_first > ref.top) && !(max_second - ref.other > room));
    if (done || !covered || batches == 8) {
      add_compensated(hi[0], lo[0], warp_sum(terms.first));
      add_compensated(hi[1], lo[1], warp_sum(terms.second));
      add_compensated(hi[2], lo[2], warp_sum(terms.mean));
      if (done) break;
      terms = {0, 0, 0};
      batches = 0;
    }
    if (!covered) {
      KlReference raised = ref;
      const float top = warp_max(max_first);
      if (top > ref.top) {
        float at_top = -infinity();
#pragma unroll
        for (int i = 0; i < 8; ++i) at_top = x[i] == top ? fmaxf(at_top, y[i]) : at_top;
        raised.set_top(top, warp_max(at_top));
      }
      raised.other = fmaxf(ref.other, warp_max(max_second));
      KlState state{static_cast<double>(hi[0]) + lo[0], static_cast<double>(hi[1]) + lo[1],
                    static_cast<double>(hi[2]) + lo[2]};
      state.raise(ref, raised, log2_scale);
      split_double(state.first, hi[0], lo[0]);
      split_double(state.second, hi[1], lo[1]);
      split_double(state.mean, hi[2], lo[2]);
      ref = raised;
    }
    ++batches;
#pragma unroll
    for (int i = 0; i < 8; ++i) terms.add(x[i], y[i], ref, log2_scale);
  }
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < Record::sums; ++i) slice.record[i] = hi[i], slice.record[Record::lo + i] = lo[i];
    Record::set_reference(slice.record, ref);
  }
}

}  // namespace

void launch_accumulate_kl(cudaStream_t stream, Divergence kind, const Mixture& mixture, const LogitTile& tile,
                          const OnePassState& state, bool first) {
  launch("launching the one-pass statistics",
         kind == Divergence::teacher_kl ? accumulate_kl<Divergence::teacher_kl>
                                        : accumulate_kl<Divergence::student_kl>,
         grid_of(ceil_div(tile.rows * state.slices, slice_warps)), 32 * slice_warps, stream, tile, state,
         mixture.log2_scale, first);
}

}  // namespace fljsd::cuda
