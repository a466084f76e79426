// SPDX-License-Identifier: Apache-2.0
// How a warp sweeps its slice of a row's tile: loads of eight entries a lane, sums over the warp.
#pragma once

#include "cuda/device_math.cuh"
#include "cuda/one_pass_kernels.h"

namespace fljsd::cuda {

constexpr int slice_warps = 4;  // of a block; each has its slice

// Sums N values over the lanes of a warp, each lane ending with a few of the totals: at every level a lane
// sends half of its values to its partner and adds what it receives to the other half. The totals go to
// out[0..N). About N shuffles.
template <int N, int distance>
__device__ __forceinline__ void reduce_scatter(const float (&values)[N], int lane, int start, int end,
                                               float* out) {
  constexpr int half = (N + 1) / 2;
  const bool upper = (lane & distance) != 0;
  float kept[half];
#pragma unroll
  for (int i = 0; i < half; ++i) {
    const float low = values[i], high = half + i < N ? values[half + i < N ? half + i : 0] : 0;
    kept[i] = (upper ? high : low) + __shfl_xor_sync(all_lanes, upper ? low : high, distance);
  }
  start = upper ? start + half : start;
  end = upper ? end : min(end, start + half);
  if constexpr (distance > 1) {
    reduce_scatter<half, distance / 2>(kept, lane, start, end, out);
  } else {
#pragma unroll
    for (int i = 0; i < half; ++i) {
      if (start + i < end) out[start + i] = kept[i];
    }
  }
}

constexpr int batch_columns = 256;  // of a warp

// Eight entries of a lane: two vectors of four, 32 vectors apart. Entries at or past the slice's end are
// −inf.
struct TileBatch {
  float x[8], y[8];

  __device__ __forceinline__ void set(int part, const float4& x4, const float4& y4) {
    x[4 * part] = x4.x, x[4 * part + 1] = x4.y, x[4 * part + 2] = x4.z, x[4 * part + 3] = x4.w;
    y[4 * part] = y4.x, y[4 * part + 1] = y4.y, y[4 * part + 2] = y4.z, y[4 * part + 3] = y4.w;
  }
  // Where every lane's entries exist; the pointers are to this lane's first one.
  __device__ __forceinline__ void load_part(int part, const float* student, const float* teacher) {
    set(part, load4(student + 128 * part), load4(teacher + 128 * part));
  }
  __device__ __forceinline__ void load(const float* student, const float* teacher) {
    load_part(0, student, teacher);
    load_part(1, student, teacher);
  }
  // `left`: entries of the slice from the lane's first one on.
  __device__ __forceinline__ void load_some(const float* student, const float* teacher, int left) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      float4 x4 = make_float4(-infinity(), -infinity(), -infinity(), -infinity()), y4 = x4;
      const int remaining = left - 128 * part;
      if (remaining > 0) {
        x4 = load4(student + 128 * part);
        y4 = load4(teacher + 128 * part);
        if (remaining < 2) x4.y = y4.y = -infinity();
        if (remaining < 3) x4.z = y4.z = -infinity();
        if (remaining < 4) x4.w = y4.w = -infinity();
      }
      set(part, x4, y4);
    }
  }
  // Relative to enormous references.
  __device__ __forceinline__ void subtract(float base_x, float base_y) {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] -= base_x, y[i] -= base_y;
  }
  static __device__ __forceinline__ void add_bias(float (&values)[8], const float* bias, int left) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int at = 128 * (i / 4) + i % 4;
      if (at < left) values[i] += bias[at];
    }
  }
};

// The slice of a row that a warp sweeps, whole batches but for the row's end, and its record.
struct Slice {
  Index row;
  int begin, end;
  float* record;

  __device__ Slice(const LogitTile& tile, const OnePassState& state, Index record_floats) {
    const Index index = static_cast<Index>(blockIdx.x) * slice_warps + threadIdx.x / 32;
    row = index / state.slices;
    const int slice = static_cast<int>(index % state.slices), columns = static_cast<int>(tile.columns);
    const int pieces = static_cast<int>(state.slices),
              width = ((columns + pieces - 1) / pieces + batch_columns - 1) / batch_columns * batch_columns;
    begin = slice * width;
    end = min(begin + width, columns);
    record = state.data + index * record_floats;
  }
};

// The largest x and y of a batch, over the lane.
__device__ __forceinline__ void batch_max(const TileBatch& b, float& x, float& y) {
  x = b.x[0], y = b.y[0];
#pragma unroll
  for (int i = 1; i < 8; ++i) {
    x = fmaxf(x, b.x[i]);
    y = fmaxf(y, b.y[i]);
  }
}

}  // namespace fljsd::cuda
