// SPDX-License-Identifier: Apache-2.0
// The sums that a sweep's epilogue forms from pairs of logits, one row at a time. Each kind has
//
//   sums            how many floats: a multiple of 4, a quarter for each lane of a row
//   record_floats   of a finished record
//   takes_infinity  whether logits may be -inf
//   marks           whether rows may turn out to be beyond these sums; then are_bad() says which
//   Reference       what a row's logits are taken relative to; first_reference() before its first tile
//   scans           which tiles may raise it
//   Scan            what such a tile says about it; exceeds(), raised()
//   begin()         starts the sums of a tile
//   add()           adds `pairs_at_once` more pairs of raw logits; this is where the time goes
//   raise()         old sums when the row's reference rises
//   write()         the finished record
//
// The mathematics is that of one_pass_moments.cuh, kl_sums.cuh and docs/one_pass.md.
#pragma once

#include "cuda/device_math.cuh"
#include "cuda/hopper/sweep.h"
#include "cuda/one_pass_record.cuh"
#include "cuda/one_pass_turn.h"

namespace fljsd::cuda::hopper {

// Which of a row's tiles may raise its reference.
enum class Scans { no_tile, first_tile, every_tile };

// Where the sums of a row lie in shared memory: lane l of its quad holds sums [l·per_lane, (l+1)·per_lane).
struct RowSums {
  float* first;  // of the quad's first lane, first sum
  int per_lane;
  int stride;  // between the sums of a lane

  __device__ __forceinline__ float& operator[](int i) const {
    return first[(i % per_lane) * stride + i / per_lane];
  }
};

__device__ __forceinline__ float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(all_lanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(all_lanes, value, 2));
}

// The largest logits of a row so far. Starts at the lowest finite number, so that −inf − x is never NaN.
struct LargestLogits {
  float x = -largest_float, y = -largest_float;

  __device__ __forceinline__ void see(float student, float teacher) {
    x = fmaxf(x, student);
    y = fmaxf(y, teacher);
  }
  __device__ __forceinline__ void join_quad() { x = quad_max(x), y = quad_max(y); }
};

// What kinds of at most four sums have in common: they take any logits, and subtract the reference
// themselves.
template <class Relative>
struct FewSums {
  using Reference = Relative;
  static constexpr int sums = 4;
  static constexpr bool takes_infinity = true;
  static constexpr bool marks = false;
  static constexpr int pairs_at_once = 2;

  static __device__ __forceinline__ float student_base(const Reference&) { return 0; }
  static __device__ __forceinline__ float teacher_base(const Reference&) { return 0; }

  float m[sums];
  Reference reference;

  __device__ __forceinline__ void begin(const Reference& r) {
    reference = r;
#pragma unroll
    for (float& sum : m) sum = 0;
  }
};

// 0 < beta < 1: 25 product moments for the frequencies k <= 12, S_x, S_y. It differs from Moments::add()
// where an epilogue that competes with the tensor cores for power and issue slots wants fewer instructions:
// logits are not clamped unless `general` (they may be -inf, or scaling them may overflow), and S_x, S_y and
// Φ_0 are fused multiply-adds, so that D of equal models is not exactly 0 but up to 6e-8.
//
// Leaving out the moments of pairs with a negligible modulus, 39 of 47 instructions, was slower, even where
// four in five were left out: branches keep the pairs from overlapping (docs/kernels.md).
template <bool general>
struct OnePassSums {
  using M = Moments<Basis::twelve>;
  static constexpr int sums = 28;
  static constexpr int record_floats = MomentRecord<M>::floats;
  static constexpr int student_sum = M::count - 2, teacher_sum = M::count - 1;

  using Reference = ModelReferences;
  using Scan = LargestLogits;
  static __device__ __forceinline__ Reference first_reference(const SweepArguments&, int) {
    return {cuda::Reference::empty(), cuda::Reference::empty()};
  }
  static __device__ __forceinline__ bool exceeds(const Scan& tile, const Reference& r, float scale) {
    return r.x.above(tile.x, scale) > headroom || r.y.above(tile.y, scale) > headroom;
  }
  static __device__ __forceinline__ Reference raised(const Scan& tile, const Reference& r, float scale) {
    return {r.x.raised(tile.x, scale), r.y.raised(tile.y, scale)};
  }
  // What must be subtracted from the logits first: 0 unless they are huge.
  static __device__ __forceinline__ float student_base(const Reference& r) { return r.x.base; }
  static __device__ __forceinline__ float teacher_base(const Reference& r) { return r.y.base; }

  float m[sums];
  float minus_x, minus_y;

  static constexpr Scans scans = general ? Scans::every_tile : Scans::first_tile;
  static constexpr bool takes_infinity = general;
  static constexpr bool marks = !general;
  // Whether the fast kernel's sums of a tile are no good. Below the limit logits are at most 32 half log2
  // units above the reference, where they are rounded to 2^-20 of a unit: terms are good to 2^-19.5. A logit
  // of -inf adds 0 to S and a phase that is NaN, or infinite in one of θ and 5θ; m[6] = Σ uv·cos θ·cos 5θ
  // shows both.
  __device__ __forceinline__ bool are_bad() const {
    constexpr float limit = 0x1p64f;
    return !(m[student_sum] < limit && m[teacher_sum] < limit && fabsf(m[6]) < limit);
  }

  static constexpr int pairs_at_once = 2;

  __device__ __forceinline__ void begin(const Reference& r) {
    minus_x = -r.x.units;
    minus_y = -r.y.units;
#pragma unroll
    for (int i = 0; i < sums; ++i) m[i] = 0;
  }

  // 47 instructions a pair, 6 of them special functions.
  template <class X, class Y>
  __device__ __forceinline__ void add(const X& x, const Y& y, const SweepArguments& p) {
#pragma unroll
    for (int i = 0; i < pairs_at_once; ++i) add_pair(x(i), y(i), p.scale, p.phase_step);
  }
  __device__ __forceinline__ void add_pair(float x, float y, float scale, float phase_step) {
    float a = fmaf(x, scale, minus_x), b = fmaf(y, scale, minus_y);
    if constexpr (general) a = max_or_nan(a, negligible), b = max_or_nan(b, negligible);
    const float u = exp2_fast(a), v = exp2_fast(b), difference = b - a;
    m[student_sum] = fmaf(u, u, m[student_sum]);
    m[teacher_sum] = fmaf(v, v, m[teacher_sum]);
    float s1, c1, s5, c5;
    sincos_fast(difference * phase_step, s1, c1);
    sincos_fast(difference * (5 * phase_step), s5, c5);
    const float g = u * v;
    const float column[5] = {g, g * c1, g * s1, g * c1 * c1, g * c1 * s1};
    const float row[5] = {1, c5, s5, c5 * c5, c5 * s5};
    m[0] = fmaf(u, v, m[0]);
#pragma unroll
    for (int l = 1; l < 5; ++l) m[l] += column[l];
#pragma unroll
    for (int j = 1; j < 5; ++j) {
#pragma unroll
      for (int l = 0; l < 5; ++l) m[5 * j + l] = fmaf(row[j], column[l], m[5 * j + l]);
    }
  }

  // When references rise by dx, dy >= 0 units, Φ_k shrinks with both and turns by −k(dy − dx) phase steps. By
  // one lane of the row.
  static __device__ void raise(const RowSums& old, const Reference& from, const Reference& to,
                               const SweepArguments& p) {
    const float scale = p.scale;
    const double dx = to.x.total(scale) - from.x.total(scale), dy = to.y.total(scale) - from.y.total(scale);
    const auto factor = static_cast<float>(exp2(-(dx + dy)));
    old[student_sum] *= static_cast<float>(exp2(-2 * dx));
    old[teacher_sum] *= static_cast<float>(exp2(-2 * dy));
    float sine[2] = {0, 0}, cosine[2] = {1, 1};
    if (factor > 0) {  // otherwise nothing is left of the sums, and the phase may be meaningless
      const double turns = -(dy - dx) * static_cast<double>(p.phase_step) * 0.15915494309189535;  // 1/2π
      for (int i = 0; i < 2; ++i) {
        const double all = i == 0 ? turns : 5 * turns;
        sincospif(2 * static_cast<float>(all - rint(all)), &sine[i], &cosine[i]);
      }
    }
#pragma unroll 1
    for (int j = 0; j < M::rows; ++j) {
      float f[5];
#pragma unroll
      for (int l = 0; l < 5; ++l) f[l] = factor > 0 ? factor * old[5 * j + l] : 0;
      turn_powers(f, sine[0], cosine[0]);
#pragma unroll
      for (int l = 0; l < 5; ++l) old[5 * j + l] = f[l];
    }
#pragma unroll 1
    for (int l = 0; l < 5; ++l) {
      float f[M::rows];
#pragma unroll
      for (int j = 0; j < M::rows; ++j) f[j] = old[5 * j + l];
      turn_powers(f, sine[1], cosine[1]);
#pragma unroll
      for (int j = 0; j < M::rows; ++j) old[5 * j + l] = f[j];
    }
  }

  // By the four lanes of a row. The record itself holds what is on its way, totals in place of hi, then
  // values in place of lo: arrays here would be spilled, for accumulators fill the registers.
  static __device__ __forceinline__ void write(const RowSums& sum, const Reference& r, int quad_lane,
                                               float* record) {
    const unsigned quad = 0xfu << (static_cast<int>(threadIdx.x) % 32 - quad_lane);
#pragma unroll 1
    for (int i = quad_lane; i < M::count; i += 4) record[i] = sum[i];
    __syncwarp(quad);
#pragma unroll 1
    for (int i = quad_lane; i < M::values; i += 4) record[M::stride + i] = M::value(record, i);
    __syncwarp(quad);
#pragma unroll 1
    for (int i = quad_lane; i < M::values; i += 4) {
      record[i] = record[M::stride + i];
      record[M::stride + i] = 0;
    }
    if (quad_lane == 0) MomentRecord<M>::set_references(record, r);
  }
};

// beta = 0 (teacher first) and beta = 1: the three sums of kl_sums.cuh.
template <bool teacher_first>
struct KlSums : FewSums<KlReference> {
  static constexpr int record_floats = EndpointRecord::floats;
  static constexpr Scans scans = Scans::every_tile;  // the reference must be the largest of all

  struct Scan {
    KlReference at = KlReference::empty();
    __device__ __forceinline__ void see(float student, float teacher) {
      join(teacher_first ? teacher : student, teacher_first ? student : teacher,
           teacher_first ? student : teacher);
    }
    // The larger top; of equal ones that with the larger y.
    __device__ __forceinline__ void join(float top, float at_top, float other) {
      if (top > at.top || (top == at.top && at_top > at.pivot)) at.set_top(top, at_top);
      at.other = fmaxf(at.other, other);
    }
    __device__ __forceinline__ void join_quad() {
#pragma unroll
      for (int distance = 1; distance <= 2; distance *= 2) {
        const float top = __shfl_xor_sync(all_lanes, at.top, distance);
        const float pivot = __shfl_xor_sync(all_lanes, at.pivot, distance);
        const float other = __shfl_xor_sync(all_lanes, at.other, distance);
        join(top, pivot, other);
      }
    }
  };
  static __device__ __forceinline__ Reference first_reference(const SweepArguments&, int) {
    return Reference::empty();
  }
  static __device__ __forceinline__ bool exceeds(const Scan& tile, const Reference& r, float scale) {
    return tile.at.top > r.top || (tile.at.other - r.other) * scale > kl_headroom;
  }
  static __device__ __forceinline__ Reference raised(const Scan& tile, const Reference& r, float) {
    Reference to = r;
    if (tile.at.top > r.top) to.top = tile.at.top, to.pivot = tile.at.pivot;
    to.other = fmaxf(r.other, tile.at.other);
    return to;
  }
  template <class X, class Y>
  __device__ __forceinline__ void add(const X& x, const Y& y, const SweepArguments& p) {
    KlTerms terms{m[0], m[1], m[2]};
#pragma unroll
    for (int i = 0; i < pairs_at_once; ++i)
      terms.add(teacher_first ? y(i) : x(i), teacher_first ? x(i) : y(i), reference, p.scale);
    m[0] = terms.first, m[1] = terms.second, m[2] = terms.mean;
  }
  static __device__ void raise(const RowSums& old, const Reference& from, const Reference& to,
                               const SweepArguments& p) {
    KlState state{old[0], old[1], old[2]};
    state.raise(from, to, p.scale);
    old[0] = static_cast<float>(state.first);
    old[1] = static_cast<float>(state.second);
    old[2] = static_cast<float>(state.mean);
  }
  static __device__ __forceinline__ void write(const RowSums& sum, const Reference& r, int quad_lane,
                                               float* record) {
    if (quad_lane != 0) return;
#pragma unroll
    for (int i = 0; i < EndpointRecord::sums; ++i) record[i] = sum[i], record[EndpointRecord::lo + i] = 0;
    EndpointRecord::set_reference(record, r);
  }
};

// Totals over the four lanes of a row of the first `count` values: lane l ends with [l·count/4,
// (l+1)·count/4). At each of two levels a lane sends the half that it will not keep.
template <int count>
__device__ __forceinline__ void reduce_quad(const float* values, int lane, float (&totals)[count / 4]) {
  const bool upper = (lane & 2) != 0, odd = (lane & 1) != 0;
  float half[count / 2];
#pragma unroll
  for (int i = 0; i < count / 2; ++i) {
    const float low = values[i], high = values[i + count / 2];
    half[i] = (upper ? high : low) + __shfl_xor_sync(all_lanes, upper ? low : high, 2);
  }
#pragma unroll
  for (int i = 0; i < count / 4; ++i) {
    const float low = half[i], high = half[i + count / 4];
    totals[i] = (odd ? high : low) + __shfl_xor_sync(all_lanes, odd ? low : high, 1);
  }
}

}  // namespace fljsd::cuda::hopper
