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

// Where a row is normalised. Kept as pairs (reference, log-sum): near 1024 the fp32 sum of the two would be
// off by 6e-5.
struct RowReference {
  float x_ref, y_ref;            // raw logits, e.g. the row's maxima
  float log2_sum_x, log2_sum_y;  // log2 Σ e^{(x−x_ref)/T}
  float offset;                  // y_ref − x_ref, rounded
  float shift;                   // what is left: log p − log q = ((y − x) − offset)/T − shift
};

// What the gradient needs to know about a row. 32 bytes, read as two float4.
struct alignas(16) RowConstants {
  RowReference ref;
  float constant;    // −KL(q‖M) or kappa; KL(q‖p) for beta = 1; NaN for a row without a distribution
  float uses_kappa;  // 1: the second form; 0: the first; −1: the token is ignored and its gradient is 0
};

__device__ __forceinline__ RowReference make_reference(float x_ref, float y_ref, float sum_x, float sum_y,
                                                       const Mixture& m) {
  RowReference r;
  r.x_ref = x_ref;
  r.y_ref = y_ref;
  r.log2_sum_x = log2f(sum_x);
  r.log2_sum_y = log2f(sum_y);
  r.offset = y_ref - x_ref;
  // The rounding of that difference, exactly (Knuth's TwoSum), belongs to the shift.
  const float back = r.offset - y_ref;
  const float lost = (y_ref - (r.offset - back)) + (-x_ref - back);
  r.shift = logf(sum_y / sum_x) + lost * m.scale;
  return r;
}

// Sums over a row; which ones are used depends on the divergence and on whether a gradient is wanted.
struct RowTerms {
  float divergence;
  float student_kl;  // KL(q‖M)
  float kappa;
};

struct Entry {
  float larger;  // max(p, q)
  float d;       // log p − log q; ±inf where one of them is 0
  bool up;       // p > q
};

__device__ __forceinline__ Entry make_entry(float x, float y, const RowReference& r, const Mixture& m) {
  const float log2_q = fmaf(x - r.x_ref, m.log2_scale, -r.log2_sum_x);
  const float log2_p = fmaf(y - r.y_ref, m.log2_scale, -r.log2_sum_y);
  const float top = fmaxf(log2_q, log2_p);
  const float d = fmaf((y - x) - r.offset, m.scale, -r.shift);
  // Both zero: inf − inf above.
  return {exp2_fast(top), top == -infinity() ? 0.0f : d, d > 0};
}

__device__ __forceinline__ float horner(const float (&c)[6], float z) {
  return fmaf(fmaf(fmaf(fmaf(fmaf(c[5], z, c[4]), z, c[3]), z, c[2]), z, c[1]), z, c[0]);
}

// 1 − e^{−t}, relative error 2^-20: series where the subtraction cancels; the term left out is t⁶/5040 <
// 6e-8.
__device__ __forceinline__ float one_minus_exp(float t, float e) {
  const float series =
      t *
      fmaf(t, fmaf(t, fmaf(t, fmaf(t, fmaf(t, -1.0f / 720, 1.0f / 120), -1.0f / 24), 1.0f / 6), -0.5f), 1.0f);
  return t < Mixture::series_limit ? series : 1 - e;
}

// Adds the terms of one entry.
template <Divergence kind, bool with_gradient>
__device__ __forceinline__ void add_terms(float x, float y, const RowReference& r, const Mixture& m,
                                          RowTerms& sum) {
  const Entry entry = make_entry(x, y, r, m);
  const float t = fabsf(entry.d);
  const float log2_e = 1.44269504f;
  const float e = exp2_fast(-t * log2_e);
  const float q = entry.up ? entry.larger * e : entry.larger;
  if constexpr (kind == Divergence::mixture) {
    // d = ±inf (a probability of exactly 0): beyond 128 nothing changes, and e·t is 0 instead of NaN.
    const float distance = fminf(t, 128.0f);
    const float other = entry.up ? m.other[1] : m.other[0];
    const float w = fmaf(other, e, entry.up ? m.larger[1] : m.larger[0]);
    const float log_w = log1p_fast(other * (e - 1), w);
    if (t < Mixture::series_limit) {
      const float q_dd = q * entry.d * entry.d;
      sum.divergence = fmaf(q_dd, horner(m.divergence_series, entry.d), sum.divergence);
      if constexpr (with_gradient) sum.student_kl = fmaf(q_dd, horner(m.kl_series, entry.d), sum.student_kl);
    } else {
      sum.divergence = fmaf(entry.larger, -fmaf(w, log_w, other * e * distance), sum.divergence);
      if constexpr (with_gradient) {
        // q·(M/q − 1) = beta·(p − q), and log(M/q) = log W, or t + log W where p > q.
        const float mass = m.beta * entry.larger * (entry.up ? 1 - e : e - 1);
        sum.student_kl += fmaf(-q, log_w + (entry.up ? distance : 0), mass);
      }
    }
    if constexpr (with_gradient) {
      // log(1 + e^s) = log1p(ratio·e), plus d + logit(beta) where p > q
      const float z = (entry.up ? m.ratio[1] : m.ratio[0]) * e;
      sum.kappa = fmaf(q, log1p_fast(z, 1 + z) + (entry.up ? distance + m.logit[1] : 0), sum.kappa);
    }
  } else {
    // KL(first‖second) = Σ first·log(first/second) − (first − second): first is p for beta = 0 and q for beta
    // = 1.
    const bool first_larger = (kind == Divergence::teacher_kl) == entry.up;
    if (t < Mixture::series_limit) {
      sum.divergence = fmaf(q * entry.d * entry.d, horner(m.divergence_series, entry.d), sum.divergence);
    } else if (first_larger) {
      sum.divergence += t == infinity() ? t : entry.larger * (t - 1 + e);
    } else {
      const float distance = fminf(t, 1e30f);  // 0·inf otherwise
      sum.divergence += entry.larger * fmaf(-e, distance + 1, 1.0f);
    }
  }
}

// dD/dx_v, temperature and reduction not yet applied; |dD/dx_v| <= 1 for beta < 1.
template <Divergence kind>
__device__ __forceinline__ float gradient(float x, float y, const RowConstants& row, const Mixture& m) {
  const Entry entry = make_entry(x, y, row.ref, m);
  const float t = fabsf(entry.d);
  const float e = exp2_fast(-t * 1.44269504f);
  const float q = entry.up ? entry.larger * e : entry.larger;
  float g;
  if constexpr (kind == Divergence::teacher_kl) {
    const float gap = entry.larger * one_minus_exp(t, e);  // |p − q|
    g = entry.up ? -gap : gap;
  } else if constexpr (kind == Divergence::student_kl) {
    g = q == 0 ? 0 : q * (-entry.d - row.constant);
  } else {
    const bool kappa = row.uses_kappa > 0;
    // First form: log(M/q) = log W, plus d where p > q. Second: log(1 + e^s) = log1p(ratio·e), plus d +
    // logit(beta).
    const float other = entry.up ? m.other[1] : m.other[0];
    const float z = kappa ? (entry.up ? m.ratio[1] : m.ratio[0]) * e : other * (e - 1);
    const float one_plus_z = kappa ? 1 + z : fmaf(other, e, entry.up ? m.larger[1] : m.larger[0]);
    const float add_up = fminf(t, 128.0f) + (kappa ? m.logit[1] : 0);
    float log_ratio = log1p_fast(z, one_plus_z) + (entry.up ? add_up : 0);
    if (!kappa && t < Mixture::series_limit) {
      const float(&c)[7] = m.log_series;
      float series = fmaf(c[6], entry.d, c[5]);
#pragma unroll
      for (int n = 4; n >= 0; --n) series = fmaf(series, entry.d, c[n]);
      log_ratio = series * entry.d;
    }
    g = m.one_minus_beta * q * (row.constant - log_ratio);
  }
  return g;
}

}  // namespace fljsd::cuda
