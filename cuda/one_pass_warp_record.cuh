// SPDX-License-Identifier: Apache-2.0
// A record of one-pass statistics in the registers of a warp.
#pragma once

#include "cuda/one_pass_finish.cuh"
#include "cuda/one_pass_slice.cuh"
#include "cuda/one_pass_values.cuh"

namespace fljsd::cuda {

// Lane i holds values i and i + 32, each as hi + lo.
template <class M>
struct WarpRecord {
  using Record = MomentRecord<M>;
  float hi[M::per_lane], lo[M::per_lane];
  ModelReferences ref;
  float* scratch;  // [Record::floats] in shared memory, the warp's own
  int lane;

  __device__ __forceinline__ WarpRecord(float* warp_scratch, int lane_in_warp)
      : scratch(warp_scratch), lane(lane_in_warp) {
#pragma unroll
    for (int r = 0; r < M::per_lane; ++r) hi[r] = lo[r] = 0;
    ref = {Reference::empty(), Reference::empty()};
  }
  __device__ __forceinline__ void load(const float* record) {
    each([&](int r, int i) { hi[r] = record[i], lo[r] = record[Record::lo + i]; });
    ref = Record::references(record);
  }
  __device__ __forceinline__ void store(float* record) const {
    each([&](int r, int i) { record[i] = hi[r], record[Record::lo + i] = lo[r]; });
    if (lane == 0) Record::set_references(record, ref);
  }

  // Whether there are references, and no logits so large that they must be subtracted first.
  __device__ __forceinline__ bool is_ordinary() const {
    return !ref.x.is_empty() && !ref.y.is_empty() && ref.x.base == 0 && ref.y.base == 0;
  }

  // Adds the moments of all lanes: about 250 instructions for K = 12.
  __device__ __forceinline__ void add(const M& moments) {
    reduce_scatter<M::count, 16>(moments.m, lane, 0, M::count, scratch);
    __syncwarp();
    step<0>();
    step<1>();
    step<2>();
    each([&](int r, int i) { add_compensated(hi[r], lo[r], scratch[i]); });
    __syncwarp();
  }

  // Values relative to new references.
  __device__ __forceinline__ void raise(const ModelReferences& raised, float scale, float phase_step) {
    const Turn turn(ref, raised, scale, phase_step);
    each([&](int r, int i) { scratch[i] = hi[r], scratch[Record::lo + i] = lo[r]; });
    __syncwarp();
    each([&](int r, int i) {
      const double turned = turn.value<M>(i, [&](int at) { return Record::value(scratch, at); });
      hi[r] = static_cast<float>(turned);
      lo[r] = static_cast<float>(turned - hi[r]);
    });
    __syncwarp();
    ref = raised;
  }

 private:
  // The values that this lane holds.
  template <class Use>
  __device__ __forceinline__ void each(const Use& use) const {
#pragma unroll
    for (int r = 0; r < M::per_lane; ++r) {
      if (lane + 32 * r < M::values) use(r, lane + 32 * r);
    }
  }
  // A step from totals to values, in place.
  template <int which>
  __device__ __forceinline__ void step() {
    float value[M::per_lane];
#pragma unroll
    for (int r = 0; r < M::per_lane; ++r) {
      const int i = lane + 32 * r;
      value[r] = i < 5 * M::rows ? value_after<M, which>(scratch, i) : 0;
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < M::per_lane; ++r) {
      const int i = lane + 32 * r;
      if (i < 5 * M::rows) scratch[i] = value[r];
    }
    __syncwarp();
  }
};

}  // namespace fljsd::cuda
