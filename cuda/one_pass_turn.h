// SPDX-License-Identifier: Apache-2.0
// What becomes of sums of {1, c, s, c², cs} (c = cos φ, s = sin φ, the functions that one_pass_moments.cuh
// multiplies) when every angle φ is turned by δ.
#pragma once

#include "cuda/arithmetic.h"

namespace fljsd::cuda {

// In place; sine, cosine: of δ. By way of the harmonics cos kφ and sin kφ, which turn by kδ: cos 2φ = 2c² − 1
// and sin 2φ = 2cs.
FLJSD_HOST_DEVICE void turn_powers(float (&f)[5], float sine, float cosine) {
  const float re = 2 * f[3] - f[0], im = 2 * f[4];
  const float cosine_2 = cosine * cosine - sine * sine, sine_2 = 2 * sine * cosine;
  const float c = f[1], s = f[2];
  f[1] = c * cosine - s * sine;
  f[2] = s * cosine + c * sine;
  f[3] = 0.5f * (re * cosine_2 - im * sine_2 + f[0]);
  f[4] = 0.5f * (im * cosine_2 + re * sine_2);
}

}  // namespace fljsd::cuda
