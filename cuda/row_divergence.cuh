// SPDX-License-Identifier: Apache-2.0
// The row mathematics in fp32, once: terms of the divergence and of the gradient for one vocabulary entry.
//
//   x, y      raw logits of student and teacher (bias added, temperature not yet applied)
//   log q_v = (x_v − x_ref)/T − log_sum_x      log p_v likewise      d_v = log p_v − log q_v      w_v =
//   M_v/q_v
//
// docs/math.md, section 4, derives D = Σ q·[beta·ψ(d) − φ(beta·expm1 d)] = Σ q·[beta·d·e^d − w·log w], whose
// terms are all
// >= 0. With the larger of the two probabilities in front nothing overflows: let `other` be the share in M of
// the model with the smaller probability (beta where q >= p, 1−beta where p > q), larger = max(p, q), t =
// |d|, e = e^{−t}. Then
//
//   W = M/larger = (1 − other) + other·e           term of D   = larger·[−W·log W − other·e·t]
//
// for either sign of d: exchanging the models exchanges beta with 1−beta and the sign of d, and leaves D as
// it is. Near d = 0 the bracket cancels (it is of second order), so |d| < 1/4 uses the Taylor series of the
// same function.
//
// For the gradient there are two forms of one number, because either cancels where the other does not:
//
//   dD/dx_v = (1−beta)·q_v·(−KL(q‖M) − log(M_v/q_v))             good where p is near q: both terms are small
//           = (1−beta)·q_v·(kappa − log(1 + e^{s_v}))            good where q and p hardly overlap: both
//           terms are small
//   s_v = d_v + logit(beta),   kappa = Σ_v q_v·log(1 + e^{s_v}) = −log(1−beta) − KL(q‖M)
//
// A row uses the form whose constant is the smaller one.
#pragma once

#include "cuda/device_math.cuh"
#include "cuda/mixture.h"

namespace fljsd::cuda {

// Where a row is normalised. Kept as pairs (reference, log-sum): near 1024 the fp32 sum of the two would be off by 6e-5.
struct RowReference {
  float x_ref, y_ref;            // raw logits, e.g. the row's maxima
  float log2_sum_x, log2_sum_y;  // log2 Σ e^{(x−x_ref)/T}
  float offset;                  // y_ref − x_ref, rounded
  float shift;                   // what is left, in nats: log p − log q = ((y − x) − offset)/T − shift
};

// What the gradient needs to know about a row. 32 bytes, read as two float4.
struct alignas(16) RowConstants {
  RowReference ref;
  float constant;    // −KL(q‖M) or kappa; KL(q‖p) for beta = 1; in bits; NaN for a row without a distribution
  float uses_kappa;  // 1: the second form; 0: the first; −1: the token is ignored and its gradient is 0
};

// log2_sum_x and _y are relative to the references.
__device__ __forceinline__ RowReference make_reference(float x_ref, float y_ref, float log2_sum_x, float log2_sum_y,
                                                       float log2_ratio, const Mixture& m) {
  RowReference r;
  r.x_ref = x_ref;
  r.y_ref = y_ref;
  r.log2_sum_x = log2_sum_x;
  r.log2_sum_y = log2_sum_y;
  r.offset = y_ref - x_ref;
  // The rounding of that difference, exactly (Knuth's TwoSum), belongs to the shift.
  const float back = r.offset - y_ref;
  const float lost = (y_ref - (r.offset - back)) + (-x_ref - back);
  r.shift = fmaf(lost, m.scale, log2_ratio * ln2);
  return r;
}

// Sums over a row, in bits; which ones are used depends on the divergence and on whether a gradient is wanted.
struct RowTerms {
  float divergence;
  float student_kl;  // KL(q‖M)
  float kappa;
};

struct Entry {
  float larger;    // max(p, q)
  float distance;  // |log2 p − log2 q|, finite
  bool up;         // p > q
};

// Probability 0 is a logarithm so low that its exponential is 0 and its differences are finite: no inf − inf.
constexpr float log2_zero = -1e30f;

__device__ __forceinline__ Entry make_entry(float x, float y, const RowReference& r, const Mixture& m) {
  const float log2_q = fmaxf(fmaf(x - r.x_ref, m.log2_scale, -r.log2_sum_x), log2_zero);
  const float log2_p = fmaxf(fmaf(y - r.y_ref, m.log2_scale, -r.log2_sum_y), log2_zero);
  return {exp2_fast(fmaxf(log2_q, log2_p)), fabsf(log2_p - log2_q), log2_p > log2_q};
}

// log p − log q in nats, for entries that are close: the difference of the logits first, which is exact there. 0 where both
// probabilities are 0.
__device__ __forceinline__ float close_difference(const Entry& entry, float x, float y, const RowReference& r,
                                                  const Mixture& m) {
  return entry.larger > 0 ? fmaf((y - x) - r.offset, m.scale, -r.shift) : 0;
}
constexpr float close_bits = Mixture::series_limit * 1.44269504f;

__device__ __forceinline__ float horner(const float (&c)[6], float z) {
  return fmaf(fmaf(fmaf(fmaf(fmaf(c[5], z, c[4]), z, c[3]), z, c[2]), z, c[1]), z, c[0]);
}

// log2 W, W = M/larger, for entries that are not close.
__device__ __forceinline__ float log2_share(float w, float other, float e, const Mixture& m) {
  if (m.small_share) {  // the same branch for the whole grid
    const float z = other * (e - 1);
    if (z > -0.0625f) return log2_1p_small(z);
  }
  return log2_fast(w);
}

// Adds the terms of one entry.
template <Divergence kind, bool with_gradient>
__device__ __forceinline__ void add_terms(float x, float y, const RowReference& r, const Mixture& m, RowTerms& sum) {
  const Entry entry = make_entry(x, y, r, m);
  const float e = exp2_fast(-entry.distance);
  const float t = entry.distance;
  constexpr float log2_e = 1.44269504f;
  if constexpr (kind == Divergence::mixture) {
    const float other = entry.up ? m.other[1] : m.other[0];
    const float w = fmaf(other, e, entry.up ? m.larger[1] : m.larger[0]);
    const float log2_w = log2_share(w, other, e, m);
    if (t < close_bits) {
      const float d = close_difference(entry, x, y, r, m);
      const float q_dd = (entry.up ? entry.larger * e : entry.larger) * d * d;
      sum.divergence = fmaf(q_dd, horner(m.divergence_series, d), sum.divergence);
      if constexpr (with_gradient) sum.student_kl = fmaf(q_dd, horner(m.kl_series, d), sum.student_kl);
    } else {
      sum.divergence = fmaf(-entry.larger, fmaf(other * e, t, w * log2_w), sum.divergence);
      if constexpr (with_gradient) {
        // q·(M/q − 1) = beta·(p − q), and log(M/q) = log W, or t + log W where p > q.
        const float q = entry.up ? entry.larger * e : entry.larger;
        const float mass = m.beta * log2_e * entry.larger * (entry.up ? 1 - e : e - 1);
        sum.student_kl += fmaf(-q, log2_w + (entry.up ? t : 0), mass);
      }
    }
    if constexpr (with_gradient) {
      // log(1 + e^s) = log1p(ratio·e), plus d + logit(beta) where p > q; log1p(ratio·e) = log W − log(larger share)
      const float q = entry.up ? entry.larger * e : entry.larger;
      const float z = (entry.up ? m.ratio[1] : m.ratio[0]) * e;
      const float log2_1pz =
          z < 0.0625f ? log2_1p_small(z) : log2_w - (entry.up ? m.log2_larger[1] : m.log2_larger[0]);
      sum.kappa = fmaf(q, log2_1pz + (entry.up ? t + m.logit_bits[1] : 0), sum.kappa);
    }
  } else {
    // KL(first‖second) = Σ first·log(first/second) − (first − second): first is p for beta = 0 and q for beta = 1.
    const bool first_larger = (kind == Divergence::teacher_kl) == entry.up;
    if (t < close_bits) {
      const float d = close_difference(entry, x, y, r, m);
      const float q = entry.up ? entry.larger * e : entry.larger;
      sum.divergence = fmaf(q * d * d, horner(m.divergence_series, d), sum.divergence);
    } else if (first_larger) {
      // Only the first model has the entry: infinity, however small its probability.
      const bool only_first = kind == Divergence::teacher_kl ? x == -infinity() : y == -infinity();
      sum.divergence += only_first ? infinity() : entry.larger * fmaf(log2_e, e - 1, t);
    } else {
      sum.divergence += entry.larger * fmaf(-e, t + log2_e, log2_e);
    }
  }
}

// dD/dx_v, temperature and reduction not yet applied; |dD/dx_v| <= 1 for beta < 1.
template <Divergence kind>
__device__ __forceinline__ float gradient(float x, float y, const RowConstants& row, const Mixture& m) {
  const Entry entry = make_entry(x, y, row.ref, m);
  const float t = entry.distance;
  const float e = exp2_fast(-t);
  const float q = entry.up ? entry.larger * e : entry.larger;
  if constexpr (kind == Divergence::teacher_kl) {
    // q − p = q·(1 − e^d)
    if (t < close_bits) {
      const float d = close_difference(entry, x, y, row.ref, m);
      const float series =
          fmaf(d, fmaf(d, fmaf(d, fmaf(d, fmaf(d, 1.0f / 720, 1.0f / 120), 1.0f / 24), 1.0f / 6), 0.5f), 1.0f);
      return -q * d * series;
    }
    return entry.larger * (entry.up ? e - 1 : 1 - e);
  } else if constexpr (kind == Divergence::student_kl) {
    const float d = t < close_bits ? close_difference(entry, x, y, row.ref, m) : (entry.up ? t : -t) * ln2;
    return q * fmaf(-ln2, row.constant, -d);
  } else {
    const bool kappa = row.uses_kappa > 0;
    // First form: log(M/q) = log W, plus d where p > q. Second: log(1 + e^s) = log1p(ratio·e), plus d + logit(beta).
    float log2_ratio;
    if (kappa) {
      const float z = (entry.up ? m.ratio[1] : m.ratio[0]) * e;
      log2_ratio = (z < 0.0625f ? log2_1p_small(z) : log2_fast(1 + z)) + (entry.up ? t + m.logit_bits[1] : 0);
    } else if (t < close_bits) {
      const float d = close_difference(entry, x, y, row.ref, m);
      const float(&c)[7] = m.log_series;
      float series = fmaf(c[6], d, c[5]);
#pragma unroll
      for (int n = 4; n >= 0; --n) series = fmaf(series, d, c[n]);
      log2_ratio = series * d;
    } else {
      const float other = entry.up ? m.other[1] : m.other[0];
      const float w = fmaf(other, e, entry.up ? m.larger[1] : m.larger[0]);
      log2_ratio = log2_share(w, other, e, m) + (entry.up ? t : 0);
    }
    return m.one_minus_beta * ln2 * q * (row.constant - log2_ratio);
  }
}

}  // namespace fljsd::cuda
