// SPDX-License-Identifier: Apache-2.0
// Normalisers of a row, online: a running maximum and the sum of exponentials relative to it.
#pragma once

#include "cuda/row_divergence.cuh"

namespace fljsd::cuda {

// Σ 2^{(x − max)·log2_scale}. The difference comes first: a logit times log2_scale, rounded, would be off by
// 2^-24 of itself, which for logits of 1e9 is more than an exponent of fp32 can hold. Starts at the lowest
// finite number, and then −inf − max is never NaN: a row with nothing finite keeps sum 0, and one with NaN or
// +inf gets sum NaN.
struct OnlineSum {
  float max, sum;

  static FLJSD_HOST_DEVICE OnlineSum empty() { return {-largest_float, 0}; }

  FLJSD_HOST_DEVICE void add(const float (&v)[8], float log2_scale) {
    float top = max;
    FLJSD_UNROLL
    for (int i = 0; i < 8; ++i) top = fmaxf(top, v[i]);
    float e[8];
    FLJSD_UNROLL
    for (int i = 0; i < 8; ++i) e[i] = exp2_fast((v[i] - top) * log2_scale);
    const float added = ((e[0] + e[1]) + (e[2] + e[3])) + ((e[4] + e[5]) + (e[6] + e[7]));
    sum = fmaf(sum, exp2_fast((max - top) * log2_scale), added);
    max = top;
  }
  FLJSD_HOST_DEVICE void merge(const OnlineSum& other, float log2_scale) {
    const float top = fmaxf(max, other.max);
    sum = sum * exp2_fast((max - top) * log2_scale) + other.sum * exp2_fast((other.max - top) * log2_scale);
    max = top;
  }
};

// The entry with the largest student logit x, and its teacher logit y; of several such entries the largest y.
struct TopEntry {
  float x, y;

  static FLJSD_HOST_DEVICE TopEntry empty() { return {-largest_float, -infinity()}; }

  FLJSD_HOST_DEVICE void merge(const TopEntry& other) {
    if (other.x > x || (other.x == x && other.y > y)) *this = other;
  }
  FLJSD_HOST_DEVICE void add(const float (&xs)[8], const float (&ys)[8]) {
    FLJSD_UNROLL
    for (int i = 0; i < 8; ++i) merge({xs[i], ys[i]});
  }
};

// Where a row is normalised (row_divergence.cuh), from its sums.
template <Divergence kind>
FLJSD_HOST_DEVICE RowReference reference_of(const OnlineSum& x, const OnlineSum& y, const TopEntry& top,
                                            const Mixture& m) {
  const float log2_sum_x = log2f(x.sum), log2_sum_y = log2f(y.sum), log2_ratio = log2f(y.sum / x.sum);
  if constexpr (kind == Divergence::student_kl) {
    // A teacher without the top entry makes the loss infinite, whatever the reference is.
    const float y_ref = top.y > -infinity() ? top.y : y.max, above = (y.max - y_ref) * m.log2_scale;
    return make_reference(x.max, y_ref, log2_sum_x, log2_sum_y + above, log2_ratio + above, m);
  }
  return make_reference(x.max, y.max, log2_sum_x, log2_sum_y, log2_ratio, m);
}

}  // namespace fljsd::cuda
