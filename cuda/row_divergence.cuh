// SPDX-License-Identifier: Apache-2.0
// The row mathematics in fp32, once: terms of the divergence and of the gradient for one vocabulary entry.
//
//   x, y      raw logits of student and teacher (bias added, temperature not yet applied)
//   log q_v = (x_v − x_ref)/T − log_sum_x
//   log p_v   likewise
//   d_v     = log p_v − log q_v
//   w_v     = M_v/q_v
//
// docs/math.md, section 4, derives D = Σ q·[beta·ψ(d) − φ(beta·expm1 d)] = Σ q·[beta·d·e^d − w·log w], whose
// terms are not negative. With the larger of the two probabilities in front nothing overflows: let `other` be
// the share in M of the model with the smaller probability (beta where q >= p, 1−beta where p > q), larger =
// max(p, q), t = |d|, e = e^{−t}. Then
//
//   W = M/larger = (1 − other) + other·e           term of D   = larger·[−W·log W − other·e·t]
//
// for either sign of d: exchanging the models exchanges beta with 1−beta and the sign of d, and leaves D as
// it is. Near d = 0 the bracket cancels (it is of second order), so |d| < 1/4 uses the Taylor series of the
// same function.
//
// For the gradient there are two forms of one number, because either cancels where the other does not:
//
//   dD/dx_v = (1−beta)·q_v·(−KL(q‖M) − log(M_v/q_v))    both terms are small where p is near q
//           = (1−beta)·q_v·(kappa − log(1 + e^{s_v}))   both are where q and p hardly overlap
//
//   s_v = d_v + logit(beta),   kappa = Σ_v q_v·log(1 + e^{s_v}) = −log(1−beta) − KL(q‖M)
//
// A row uses the form whose constant is the smaller one.
//
// At beta = 1 only q_v·(log(q_v/p_v) − KL(q‖p)) is left, and where q and p hardly overlap KL is in the
// hundreds while the entry with nearly all of q has a gradient of nearly 0: log(q/p) and KL cancel, and their
// rounding, 2^-24 of hundreds, is all that is left. So both are taken relative to the entry `top` with the
// largest q, where the log ratio d is d_top:
//
//   dD/dx_v = q_v·((d_top − d_v) − c),   c = Σ_v q_v·(d_top − d_v)
//
// (the sum of q is 1, so any number may be subtracted from both). The top's own term is 0 exactly, because
// d_top is evaluated by the same operations as any d_v; c is then as small as 1 − q_top, with an error
// relative to itself, and so is the gradient.
#pragma once

#include "cuda/arithmetic.h"
#include "cuda/mixture.h"

namespace fljsd::cuda {

// Where a row is normalised. Kept as pairs (reference, log-sum): near 1024 the fp32 sum of the two would be
// off by 6e-5.
struct RowReference {
  // Raw logits: the row's maxima; at beta = 1 both logits of the entry with the largest q.
  float x_ref, y_ref;
  float log2_sum_x, log2_sum_y;  // log2 Σ e^{(x−x_ref)/T}
  // y_ref − x_ref, rounded; infinity() if that is too large for the entries' y − x to be exact.
  float offset;
  float shift;  // what is left, in nats: log p − log q = ((y − x) − offset)/T − shift
};

// What the gradient needs to know about a row. 32 bytes, read as two float4.
struct alignas(16) RowConstants {
  RowReference ref;
  float constant;    // in bits: −KL(q‖M) or kappa; c for beta = 1; NaN for a row without a distribution
  float uses_kappa;  // 1: the second form; 0: the first; −1: the token is ignored and its gradient is 0
};

// Above this distance of the references y − x is taken as (y − y_ref) − (x − x_ref): logits near 1000 lie
// 6e-5 apart, their sum or difference 1.2e-4, but distances from a reference are exact or small.
constexpr float largest_offset = 32;

// log2_sum_x and _y are relative to the references; log2_ratio is their difference, good to its own size.
FLJSD_HOST_DEVICE RowReference make_reference(float x_ref, float y_ref, float log2_sum_x, float log2_sum_y,
                                              float log2_ratio, const Mixture& m) {
  RowReference r;
  r.x_ref = x_ref;
  r.y_ref = y_ref;
  r.log2_sum_x = log2_sum_x;
  r.log2_sum_y = log2_sum_y;
  r.offset = y_ref - x_ref;
  r.shift = log2_ratio * ln2;
  if (fabsf(r.offset) <= largest_offset) {
    // The rounding of that difference, exactly (Knuth's TwoSum), belongs to the shift.
    const float back = r.offset - y_ref;
    const float lost = (y_ref - (r.offset - back)) + (-x_ref - back);
    r.shift = fmaf(lost, m.scale, r.shift);
  } else {
    r.offset = infinity();
  }
  return r;
}

// Sums over a row, in bits; which ones are used depends on the divergence and on whether a gradient is
// wanted.
struct RowTerms {
  float divergence;
  float kl_to_mixture;  // KL(q‖M)
  float kappa;          // c for beta = 1
};

// D in nats from the sum of its terms in bits. No term is negative, but for beta within 1e-5 of 1 what is
// left of −W·log W − other·e·t where p > q is rounding, and so may be the sum: -4e-8 was seen. NaN stays NaN.
FLJSD_HOST_DEVICE float divergence_in_nats(float bits) {
  return bits < 0 ? 0 : ln2 * bits;
}

struct Entry {
  float larger;    // max(p, q)
  float distance;  // |log2 p − log2 q|, finite
  float e;         // 2^−distance = min(p, q)/max(p, q)
  bool up;         // p > q

  FLJSD_HOST_DEVICE float q() const { return up ? larger * e : larger; }
};

// Probability 0 is a logarithm so low that its exponential is 0 and its differences are finite: no inf − inf.
// A finite logit that lies further than 2^126 nats below its reference counts as this.
constexpr float log2_zero = -largest_float / 2;

template <Divergence kind>
FLJSD_HOST_DEVICE Entry make_entry(float x, float y, const RowReference& r, const Mixture& m) {
  const float log2_q = fmaxf(fmaf(x - r.x_ref, m.log2_scale, -r.log2_sum_x), log2_zero);
  float log2_p = fmaxf(fmaf(y - r.y_ref, m.log2_scale, -r.log2_sum_y), log2_zero);
  // At beta = 1 y_ref may lie far below the largest y, and rounding may make p larger than 1.
  if constexpr (kind == Divergence::student_kl) log2_p = fminf(log2_p, 0);
  const float distance = fabsf(log2_p - log2_q);
  return {exp2_fast(fmaxf(log2_q, log2_p)), distance, exp2_fast(-distance), log2_p > log2_q};
}

constexpr float close_bits = Mixture::series_limit * log2_e;

// log p − log q in nats, for entries that are close: the difference of the logits first, which is exact
// there. 0 where both probabilities are 0. Rounding of enormous logits may say anything; the entry is close
// all the same.
FLJSD_HOST_DEVICE float close_difference(const Entry& entry, float x, float y, const RowReference& r,
                                         const Mixture& m) {
  const float apart = r.offset < infinity() ? (y - x) - r.offset : (y - r.y_ref) - (x - r.x_ref);
  const float d = fminf(fmaxf(fmaf(apart, m.scale, -r.shift), -Mixture::series_limit), Mixture::series_limit);
  return entry.larger > 0 ? d : 0;
}

// log p − log q in nats of any entry; finite.
FLJSD_HOST_DEVICE float log_ratio(const Entry& entry, float x, float y, const RowReference& r,
                                  const Mixture& m) {
  return entry.distance < close_bits ? close_difference(entry, x, y, r, m)
                                     : (entry.up ? entry.distance : -entry.distance) * ln2;
}

// d_top, for beta = 1.
FLJSD_HOST_DEVICE float top_log_ratio(const RowReference& r, const Mixture& m) {
  return log_ratio(make_entry<Divergence::student_kl>(r.x_ref, r.y_ref, r, m), r.x_ref, r.y_ref, r, m);
}

template <int degree>
FLJSD_HOST_DEVICE float horner(const float (&c)[degree], float z) {
  float sum = c[degree - 1];
  FLJSD_UNROLL
  for (int n = degree - 2; n >= 0; --n) sum = fmaf(sum, z, c[n]);
  return sum;
}

// W = M/larger and log2 W, for entries that are not close. small_share: `other` may be small, and W close to
// 1; or the larger share may be, and W close to it.
struct Share {
  float other, w, log2_w;
};
template <bool small_share>
FLJSD_HOST_DEVICE Share make_share(const Entry& entry, const Mixture& m) {
  Share s;
  s.other = entry.up ? m.other[1] : m.other[0];
  const float z = s.other * (entry.e - 1);
  if constexpr (small_share) {
    s.w = fmaf(s.other, entry.e, entry.up ? m.larger[1] : m.larger[0]);
    s.log2_w = z > -0.0625f ? log2_1p_small(z) : log2_fast(s.w);
  } else {
    s.w = 1 + z;
    s.log2_w = log2_fast(s.w);
  }
  return s;
}

// Adds the terms of N entries. Both kinds of term are formed without branching, so that the entries overlap;
// the series only when some entry needs it.
template <Divergence kind, bool with_gradient, bool small_share, int N>
FLJSD_HOST_DEVICE void add_terms(const float* x, const float* y, const RowReference& r, const Mixture& m,
                                 RowTerms& sum) {
  Entry entry[N];
  float divergence[N], kl[N];
  float nearest = largest_float;
  FLJSD_UNROLL
  for (int i = 0; i < N; ++i) {
    entry[i] = make_entry<kind>(x[i], y[i], r, m);
    nearest = fminf(nearest, entry[i].distance);
    const float t = entry[i].distance, e = entry[i].e;
    const bool up = entry[i].up;
    if constexpr (kind == Divergence::mixture) {
      const Share s = make_share<small_share>(entry[i], m);
      divergence[i] = -entry[i].larger * fmaf(s.other * e, t, s.w * s.log2_w);
      if constexpr (with_gradient) {
        // q·(M/q − 1) = beta·(p − q), and log(M/q) = log W, or t + log W where p > q.
        const float q = entry[i].q();
        const float mass = m.beta * log2_e * entry[i].larger * (up ? 1 - e : e - 1);
        kl[i] = fmaf(-q, s.log2_w + (up ? t : 0), mass);
        // log(1 + e^s) = log1p(ratio·e), plus d + logit(beta) where p > q; log1p(ratio·e) = log W −
        // log(larger share)
        const float z = (up ? m.ratio[1] : m.ratio[0]) * e;
        const float log2_1pz =
            z < 0.0625f ? log2_1p_small(z) : s.log2_w - (up ? m.log2_larger[1] : m.log2_larger[0]);
        sum.kappa = fmaf(q, log2_1pz + (up ? t + m.logit_bits[1] : 0), sum.kappa);
      }
    } else {
      // KL(first‖second) = Σ first·log(first/second) − (first − second): first is p for beta = 0 and q for
      // beta = 1. Only the first model has the entry: infinity, however small its probability.
      const bool first_larger = (kind == Divergence::teacher_kl) == up;
      const bool only_first =
          (kind == Divergence::teacher_kl ? x[i] : y[i]) == -infinity() && entry[i].distance > 0;
      const float factor = first_larger ? fmaf(log2_e, e - 1, t) : fmaf(-e, t + log2_e, log2_e);
      divergence[i] = first_larger && only_first ? infinity() : entry[i].larger * factor;
    }
  }
  if (nearest < close_bits) {
    FLJSD_UNROLL
    for (int i = 0; i < N; ++i) {
      const bool close = entry[i].distance < close_bits;
      const float d = close_difference(entry[i], x[i], y[i], r, m);
      const float q_dd = entry[i].q() * d * d;
      divergence[i] = close ? q_dd * horner(m.divergence_series, d) : divergence[i];
      if constexpr (with_gradient && kind == Divergence::mixture)
        kl[i] = close ? q_dd * horner(m.kl_series, d) : kl[i];
    }
  }
  if constexpr (with_gradient && kind == Divergence::student_kl) {
    const float top = top_log_ratio(r, m);
    FLJSD_UNROLL
    for (int i = 0; i < N; ++i) {
      sum.kappa = fmaf(entry[i].q() * log2_e, top - log_ratio(entry[i], x[i], y[i], r, m), sum.kappa);
    }
  }
  FLJSD_UNROLL
  for (int i = 0; i < N; ++i) {
    sum.divergence += divergence[i];
    if constexpr (with_gradient && kind == Divergence::mixture) sum.kl_to_mixture += kl[i];
  }
}

// dD/dx_v times `factor` of N entries, temperature and reduction not yet applied; |dD/dx_v| <= 1 for beta
// < 1.
template <Divergence kind, bool small_share, int N>
FLJSD_HOST_DEVICE void gradient(const float* x, const float* y, const RowConstants& row, const Mixture& m,
                                float factor, float* g) {
  Entry entry[N];
  float nearest = largest_float;
  FLJSD_UNROLL
  for (int i = 0; i < N; ++i) {
    entry[i] = make_entry<kind>(x[i], y[i], row.ref, m);
    nearest = fminf(nearest, entry[i].distance);
  }
  if constexpr (kind == Divergence::mixture) {
    const float scale = m.one_minus_beta * ln2 * factor;
    if (row.uses_kappa > 0) {  // the same branch for the whole row
                               // log(1 + e^s) = log1p(ratio·e), plus d + logit(beta) where p > q
      FLJSD_UNROLL
      for (int i = 0; i < N; ++i) {
        const bool up = entry[i].up;
        const float z = (up ? m.ratio[1] : m.ratio[0]) * entry[i].e;
        const float log2_ratio = (z < 0.0625f ? log2_1p_small(z) : log2_fast(1 + z)) +
                                 (up ? entry[i].distance + m.logit_bits[1] : 0);
        g[i] = scale * entry[i].q() * (row.constant - log2_ratio);
      }
      return;
    }
    // log(M/q) = log W, plus d where p > q
    float log2_ratio[N];
    FLJSD_UNROLL
    for (int i = 0; i < N; ++i) {
      log2_ratio[i] = make_share<small_share>(entry[i], m).log2_w + (entry[i].up ? entry[i].distance : 0);
    }
    if (nearest < close_bits) {
      FLJSD_UNROLL
      for (int i = 0; i < N; ++i) {
        const float d = close_difference(entry[i], x[i], y[i], row.ref, m);
        if (entry[i].distance < close_bits) log2_ratio[i] = d * horner(m.log_series, d);
      }
    }
    FLJSD_UNROLL
    for (int i = 0; i < N; ++i) g[i] = scale * entry[i].q() * (row.constant - log2_ratio[i]);
  } else if constexpr (kind == Divergence::teacher_kl) {  // q − p = q·(1 − e^d)
    FLJSD_UNROLL
    for (int i = 0; i < N; ++i) {
      const float far = entry[i].larger * (entry[i].up ? entry[i].e - 1 : 1 - entry[i].e);
      const float d = close_difference(entry[i], x[i], y[i], row.ref, m);
      const float series = fmaf(
          d, fmaf(d, fmaf(d, fmaf(d, fmaf(d, 1.0f / 720, 1.0f / 120), 1.0f / 24), 1.0f / 6), 0.5f), 1.0f);
      g[i] = factor * (entry[i].distance < close_bits ? -entry[i].q() * d * series : far);
    }
  } else {
    const float top = top_log_ratio(row.ref, m);
    FLJSD_UNROLL
    for (int i = 0; i < N; ++i) {
      const float apart = top - log_ratio(entry[i], x[i], y[i], row.ref, m);
      g[i] = factor * entry[i].q() * fmaf(-ln2, row.constant, apart);
    }
  }
}

}  // namespace fljsd::cuda
