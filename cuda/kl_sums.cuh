// SPDX-License-Identifier: Apache-2.0
// beta = 0 and 1: KL(first‖second) in one pass, first = p, second = q for beta = 0, and the other way round.
//
//   KL(f‖g) = c + log(f_top/g_top),   c = Σ_v f_v·[(x_v − x_top) − (y_v − y_top)]/T
//
// x, y the logits of first and second, `top` the entry with the largest x so far. Relative to that entry
// nothing cancels where first is nearly certain and the models hardly overlap: its own term is 0 exactly, c
// is as small as 1 − f_top, and so is the gradient for which c is the constant (row_divergence.cuh). A state
// is three sums and what they are relative to; two states of a row add up after both are raised to the larger
// references.
#pragma once

#include "cuda/arithmetic.h"

namespace fljsd::cuda {

constexpr float kl_headroom = 16;  // bits that a logit of second may lie above `other`

// Raw logits.
struct KlReference {
  float top;    // the largest x
  float pivot;  // y of that entry; 0 if that is −inf
  float other;  // near the largest y

  static FLJSD_HOST_DEVICE KlReference empty() { return {-largest_float, 0, -largest_float}; }
  // After an entry (x, y) of which x is larger than top, or equal to it and y larger than pivot.
  FLJSD_HOST_DEVICE void set_top(float x, float y) {
    top = x;
    pivot = y > -infinity() ? y : 0;
  }
};

// Sums of some entries relative to one reference, exponents and differences in bits.
struct KlTerms {
  float first, second;  // Σ 2^a, Σ 2^b: a = (x − top)·scale, b = (y − other)·scale
  float mean;           // Σ 2^a·(a − (y − pivot)·scale)

  FLJSD_HOST_DEVICE void add(float x, float y, const KlReference& ref, float log2_scale) {
    // Products rounded before they are subtracted: 0 where the models are equal.
    const float a = rounded_product(x - ref.top, log2_scale), e = exp2_fast(a);
    const float difference = a - rounded_product(y - ref.pivot, log2_scale);
    first += e;
    second += exp2_fast((y - ref.other) * log2_scale);
    // Probability 0 in first: nothing, whatever second is. Only in second: infinity, however small first is.
    const float term = difference == infinity() ? difference : e * difference;
    mean += x == -infinity() ? 0 : term;
  }
};

// The same sums in double.
struct KlState {
  double first, second, mean;

  // From relative to `from` to relative to `to`, whose top and other are not smaller.
  FLJSD_HOST_DEVICE void raise(const KlReference& from, const KlReference& to, float log2_scale) {
    const double scale = log2_scale;
    const double rise = (static_cast<double>(to.top) - from.top) * scale;
    // Differences fall by what the top's own difference was.
    const double fall = rise - (static_cast<double>(to.pivot) - from.pivot) * scale;
    if (mean < infinity() && mean > -infinity()) {
      if (first > 0) mean -= fall * first;
      mean *= exp2(-rise);
    }
    first *= exp2(-rise);
    second *= exp2((static_cast<double>(from.other) - to.other) * scale);
  }
  FLJSD_HOST_DEVICE bool has_distribution() const {
    return first > 0 && first < 1e300 && second > 0 && second < 1e300;
  }
  // c in bits.
  FLJSD_HOST_DEVICE double constant() const { return mean / first; }
  // log2 Σ 2^{(y − pivot)·scale}.
  FLJSD_HOST_DEVICE double log2_second_at_pivot(const KlReference& ref, float log2_scale) const {
    return log2(second) + (static_cast<double>(ref.other) - ref.pivot) * log2_scale;
  }
  // In bits, >= 0.
  FLJSD_HOST_DEVICE double divergence(const KlReference& ref, float log2_scale) const {
    const double sum = constant() + log2_second_at_pivot(ref, log2_scale) - log2(first);
    return sum < 0 ? 0 : sum;
  }
};

}  // namespace fljsd::cuda
