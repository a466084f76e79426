// SPDX-License-Identifier: Apache-2.0
// What becomes of sums of {1, c, s, c², cs, c³, c²s, c⁴, c³s} (c = cos φ, s = sin φ, the functions that
// one_pass_moments.cuh multiplies) when every angle φ is turned by δ.
#pragma once

#include "cuda/arithmetic.h"

namespace fljsd::cuda {

// The first `count` of them, 5 or 9, in place; sine, cosine: of δ. By way of the harmonics cos kφ and sin kφ,
// which turn by kδ.
template <int count>
FLJSD_HOST_DEVICE void turn_powers(float (&f)[count], float sine, float cosine) {
  static_assert(count == 5 || count == 9);
  constexpr int last = (count - 1) / 2;
  float re[last + 1], im[last + 1];
  re[1] = f[1], im[1] = f[2];
  re[2] = 2 * f[3] - f[0], im[2] = 2 * f[4];  // cos 2φ = 2c² − 1, sin 2φ = 2cs
  if constexpr (count == 9) {
    re[3] = fmaf(-3, f[1], 4 * f[5]), im[3] = 4 * f[6] - f[2];      // 4c³ − 3c, 4c²s − s
    re[4] = 8 * (f[7] - f[3]) + f[0], im[4] = 8 * f[8] - 4 * f[4];  // 8c⁴ − 8c² + 1, 8c³s − 4cs
  }
  float c = 1, s = 0;  // of kδ
  for (int k = 1; k <= last; ++k) {
    const float next = c * cosine - s * sine;
    s = s * cosine + c * sine;
    c = next;
    const float turned = re[k] * c - im[k] * s;
    im[k] = im[k] * c + re[k] * s;
    re[k] = turned;
  }
  f[1] = re[1], f[2] = im[1];
  f[3] = 0.5f * (re[2] + f[0]), f[4] = 0.5f * im[2];
  if constexpr (count == 9) {
    f[5] = 0.25f * fmaf(3, re[1], re[3]), f[6] = 0.25f * (im[3] + im[1]);
    f[7] = f[3] + 0.125f * (re[4] - f[0]), f[8] = 0.125f * fmaf(4, f[4], im[4]);
  }
}

}  // namespace fljsd::cuda
