// SPDX-License-Identifier: Apache-2.0
// Promise: sums that any tiling of the vocabulary can be added to, from which D and the row constants of the
// gradient follow. docs/one_pass.md derives them; reference/chernoff.h is the same arithmetic on the CPU.
//
//   Φ_k = Σ_v e^{(x_v + y_v)/2T}·e^{ikh(y_v − x_v)/T},   S_x = Σ_v e^{x_v/T},   S_y likewise,   k = 0..K
//   with A_k = e^{ikh·s}·Φ_k / sqrt(S_x·S_y) and s = logit(beta) + log(S_x/S_y):
//   D     = h(beta) − sqrt(beta(1−beta)) · Σ_k divergence_k · Re A_k
//   kappa = sqrt(beta/(1−beta)) · Σ_k Re[student_k · A_k]
//
// all relative to references (x_ref, y_ref) near the row's maxima. One warp sweeps one slice of a row's tile.
// Per entry two exponentials give all three kinds of term: u = e^{(x−x_ref)/2T}, v likewise; S_x += u²,
// S_y += v², modulus u·v. Frequencies k = 5j + l, |l| <= 2, come from a product basis,
//
//   u·v·{1, c, s, c², cs}(θ) ⊗ {1, c, s, c², cs, [c³, c²s, c⁴, c³s]}(5θ),   c = cos, s = sin, θ = h(y − x)/T
//
// so that a moment costs one instruction an entry; powers become harmonics (cos 2θ = 2c² − 1, ...) when a
// lane empties its moments. 48 instructions an entry for K = 12, 6 of them special functions, and 2.5 for
// loads and the loop (counted in the sm_90a code of the inner loop); 24 more for K = 22; 8 bytes read.
//
// Error budget, relative to exact arithmetic on the same logits. Quadrature: one_pass_weights.h. Sums: a lane
// adds at most 208 terms before they join the record in a compensated sum (two floats), so the number of
// tiles does not matter; terms are good to 2^-20.5, and to 2^-19.5 where a logit lies more than 16 half log2
// units above the reference. Together 1.5e-6 in D and in kappa, each times Σ_v sqrt(p_v q_v).
#pragma once

#include "cuda/arithmetic.h"
#include "cuda/one_pass_basis.h"

namespace fljsd::cuda {

constexpr float negligible = -150;  // 2^-150 is 0 in fp32 arithmetic that flushes subnormals
constexpr float headroom = 16;      // half log2 units that a logit may lie above the reference: 22 nats

// What a model's logits are taken relative to: base·scale + units, in half log2 units (scale a nat's worth of
// them over T). Ordinary logits have base 0, so that (x − base)·scale − units costs one instruction, rounded
// once. But x·scale errs by 2^-24 of itself: from 2^20 on the base is a logit of the row, and units 0. Starts
// at the lowest finite number, and rises when a logit lies more than `headroom` above it.
struct Reference {
  float base, units;

  static FLJSD_HOST_DEVICE Reference empty() { return {0, -largest_float}; }
  FLJSD_HOST_DEVICE bool is_empty() const { return units == -largest_float; }
  FLJSD_HOST_DEVICE float above(float x, float scale) const { return fmaf(x - base, scale, -units); }
  FLJSD_HOST_DEVICE double total(float scale) const {
    return static_cast<double>(base) * static_cast<double>(scale) + units;
  }
  // `max`: a logit of the row.
  FLJSD_HOST_DEVICE Reference raised(float max, float scale) const {
    if (!(above(max, scale) > 0)) return *this;
    const float all = max * scale;
    return fabsf(all) <= 0x1p20f ? Reference{0, all} : Reference{max, 0};
  }
  // As a raw logit, rounded.
  FLJSD_HOST_DEVICE float logit(float scale) const {
    return base != 0 ? base : static_cast<float>(static_cast<double>(units) / static_cast<double>(scale));
  }
};
constexpr int reference_floats = 4;  // of both models, at the end of a record

template <Basis basis>
struct Moments {
  static constexpr int rows = basis == Basis::twelve ? 5 : 9;  // functions of 5θ
  static constexpr int last = last_frequency(basis);
  static constexpr int count = 5 * rows + 2;   // moments of accumulate(): products, S_x, S_y
  static constexpr int values = 2 * last + 3;  // of a record: Φ_0, Re Φ_1, Im Φ_1, ..., S_x, S_y: as many
  static constexpr int stride =
      basis == Basis::twelve ? 32 : 56;  // hi at [0, stride), lo at [stride, 2·stride)
  static constexpr int per_lane = (values + 31) / 32;
  static_assert(count == values && values + reference_floats <= stride);

  float m[count];

  FLJSD_HOST_DEVICE void clear() {
    FLJSD_UNROLL
    for (int i = 0; i < count; ++i) m[i] = 0;
  }

  // a, b: student and teacher logit in half log2 units, relative to the references. Neither is −inf, nor so
  // far apart that their difference is infinite: the phase would be NaN, and with it m[1].
  FLJSD_HOST_DEVICE void add_finite(float a, float b, float phase_step) {
    const float u = exp2_fast(a), v = exp2_fast(b);
    const float difference = b - a;
    float s1, c1, s5, c5;
    sincos_fast(difference * phase_step, s1, c1);
    sincos_fast(difference * (5 * phase_step), s5, c5);
    // u goes with the functions of θ, v with those of 5θ, and all products are joined by fused additions:
    // where the models are equal, S_x, S_y and every moment that is not 0 get the same bits, every Φ_k too,
    // and D and the gradient are 0 up to rounding in double.
    float column[5];
    column[0] = u;
    column[1] = u * c1;
    column[2] = u * s1;
    column[3] = column[1] * c1;
    column[4] = column[1] * s1;
    float row[rows];
    row[0] = v;
    row[1] = v * c5;
    row[2] = v * s5;
    row[3] = row[1] * c5;
    row[4] = row[1] * s5;
    if constexpr (rows == 9) {
      row[5] = row[3] * c5;
      row[6] = row[3] * s5;
      row[7] = row[5] * c5;
      row[8] = row[5] * s5;
    }
    m[count - 2] = fmaf(u, u, m[count - 2]);
    m[count - 1] = fmaf(v, v, m[count - 1]);
    FLJSD_UNROLL
    for (int j = 0; j < rows; ++j) {
      FLJSD_UNROLL
      for (int l = 0; l < 5; ++l) m[5 * j + l] = fmaf(row[j], column[l], m[5 * j + l]);
    }
  }
  // The same for any logits.
  FLJSD_HOST_DEVICE void add(float a, float b, float phase_step) {
    add_finite(max_or_nan(a, negligible), max_or_nan(b, negligible), phase_step);
  }
  // Whether add_finite() was right to be called: neither θ nor 5θ was NaN or infinite (m[6] = Σ uv·cos θ·cos
  // 5θ shows both), and no logit lay more than 32 half log2 units above its reference (where it is rounded to
  // 2^-20 of a unit: such terms are good to 2^-19.5).
  FLJSD_HOST_DEVICE bool are_good() const {
    constexpr float limit = 0x1p64f;
    return m[count - 2] < limit && m[count - 1] < limit && fabsf(m[6]) < limit;
  }

  // Harmonic (j, l) of the totals: row j in {1, cos 5θ, sin 5θ, cos 10θ, ...}, column l in {1, cos θ, sin θ,
  // cos 2θ, sin 2θ}.
  static FLJSD_HOST_DEVICE float harmonic(const float* totals, int j, int l) {
    const auto column = [&](int row) {
      const float value = totals[5 * row + l];
      return l == 3 ? 2 * value - totals[5 * row] : l == 4 ? 2 * value : value;
    };
    switch (j) {
      case 3: return 2 * column(3) - column(0);                // cos 2φ = 2c² − 1
      case 4: return 2 * column(4);                            // sin 2φ = 2cs
      case 5: return fmaf(-3, column(1), 4 * column(5));       // cos 3φ = 4c³ − 3c, rounded once
      case 6: return 4 * column(6) - column(2);                // sin 3φ = 4c²s − s
      case 7: return 8 * (column(7) - column(3)) + column(0);  // cos 4φ = 8c⁴ − 8c² + 1
      case 8: return 8 * column(8) - 4 * column(4);            // sin 4φ = 8c³s − 4cs
      default: return column(j);
    }
  }

  // Value i of a record from the totals: Φ_{5j+l} = Σ u·v·e^{i·5jθ}·e^{ilθ}.
  static FLJSD_HOST_DEVICE float value(const float* totals, int i) {
    if (i >= values - 2) return totals[i];
    const int k = (i + 1) / 2;
    const bool imaginary = i > 0 && i % 2 == 0;
    const int j = (k + 2) / 5, l = k - 5 * j, columns = abs(l);
    // cos(5jθ), sin(5jθ) are rows 2j−1 and 2j; cos(lθ), sin(lθ) columns 2l−1 and 2l; sin changes sign with l
    const auto product = [&](bool row_sine, bool column_sine) {
      if ((row_sine && j == 0) || (column_sine && l == 0)) return 0.0f;
      const int row = j == 0 ? 0 : 2 * j - (row_sine ? 0 : 1);
      const int column = l == 0 ? 0 : 2 * columns - (column_sine ? 0 : 1);
      const float h = harmonic(totals, row, column);
      return column_sine && l < 0 ? -h : h;
    };
    return imaginary ? product(true, false) + product(false, true)
                     : product(false, false) - product(true, true);
  }
};
}  // namespace fljsd::cuda
