// SPDX-License-Identifier: Apache-2.0
// The sums of the two sweeps that form D by its definition, for 0 < beta < 1 (statistics.cuh says what a kind
// of sums has). The first sweep finds where a row is normalised, the second adds the terms
//
//   first:   S_x = Σ_v 2^{(x_v − x_ref)·scale}, S_y likewise, references the largest logits so far
//   between: RowReference of every token from the records (two_pass_finish.cu)
//   second:  Σ_v of the terms of row_divergence.cuh
//
// as the row kernels of stored logits do, with products of twice the work. scale is log2(e)/T.
//
// Error budget in D, relative to exact arithmetic on the same logits: that of row_kernels.cu. A lane adds 40
// terms of a tile, then tiles, one after the other, up to V/160 of them, all in fp32; terms are >= 0, so the
// sum is good to (40 + 2 + tiles)·2^-24 of itself, 5e-5·D at worst for V = 128256 and one cluster;
// with 66 clusters a record has at most 134 tiles, and the sum is good to 1.1e-5·D.
#pragma once

#include "cuda/hopper/statistics.cuh"
#include "cuda/row_divergence.cuh"

namespace fljsd::cuda::hopper {

struct NormaliserSums : FewSums<LargestLogits> {  // S_x, S_y, and two of no use
  static constexpr int record_floats = normaliser_record;
  static constexpr Scans scans = Scans::every_tile;

  using Scan = LargestLogits;
  static __device__ __forceinline__ Reference first_reference(const SweepArguments&, int) { return {}; }
  static __device__ __forceinline__ bool exceeds(const Scan& tile, const Reference& r, float scale) {
    return (tile.x - r.x) * scale > kl_headroom || (tile.y - r.y) * scale > kl_headroom;
  }
  static __device__ __forceinline__ Reference raised(const Scan& tile, const Reference& r, float) {
    return {fmaxf(r.x, tile.x), fmaxf(r.y, tile.y)};
  }
  template <class X, class Y>
  __device__ __forceinline__ void add(const X& x, const Y& y, const SweepArguments& p) {
#pragma unroll
    for (int i = 0; i < pairs_at_once; ++i) {
      m[0] += exp2_fast((x(i) - reference.x) * p.scale);
      m[1] += exp2_fast((y(i) - reference.y) * p.scale);
    }
  }
  static __device__ void raise(const RowSums& old, const Reference& from, const Reference& to,
                               const SweepArguments& p) {
    old[0] *= exp2_fast((from.x - to.x) * p.scale);
    old[1] *= exp2_fast((from.y - to.y) * p.scale);
  }
  static __device__ __forceinline__ void write(const RowSums& sum, const Reference& r, int quad_lane,
                                               float* record) {
    if (quad_lane != 0) return;
    record[0] = sum[0], record[1] = sum[1], record[2] = r.x, record[3] = r.y;
  }
};

template <bool small_share>
struct ExactSums : FewSums<RowReference> {  // the terms, and three of no use
  static constexpr int record_floats = terms_record;
  static constexpr Scans scans = Scans::no_tile;

  static __device__ __forceinline__ Reference first_reference(const SweepArguments& p, int token) {
    return token < p.tokens ? p.row_references[token] : Reference{};
  }
  template <class X, class Y>
  __device__ __forceinline__ void add(const X& x, const Y& y, const SweepArguments& p) {
    const float xs[pairs_at_once] = {x(0), x(1)}, ys[pairs_at_once] = {y(0), y(1)};
    RowTerms terms{m[0], 0, 0};
    add_terms<Divergence::mixture, false, small_share, pairs_at_once>(xs, ys, reference, p.mixture, terms);
    m[0] = terms.divergence;
  }
  static __device__ __forceinline__ void write(const RowSums& sum, const Reference&, int quad_lane,
                                               float* record) {
    if (quad_lane == 0) record[0] = sum[0];
  }
};

}  // namespace fljsd::cuda::hopper
