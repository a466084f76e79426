// SPDX-License-Identifier: Apache-2.0
// Moments::value() of a whole record at once: the same arithmetic in three steps over the array of totals, in
// each of which every entry takes the same instructions, so that a warp has a lane for each and none waits.
#pragma once

#include "cuda/one_pass_moments.cuh"

namespace fljsd::cuda {

constexpr int value_steps = 3;

// What step `step` writes at entry i < 5·M::rows, from the array as the step before left it. The array is
// [M::rows][5]: functions of φ = 5θ by functions of θ.
template <class M, int step>
FLJSD_HOST_DEVICE float value_after(const float* t, int i) {
  const int j = i / 5, l = i % 5;
  if constexpr (step == 0) {  // columns: cos 2θ = 2c² − 1, sin 2θ = 2cs
    return fmaf(l == 3 ? -1.0f : 0.0f, t[5 * j], (l >= 3 ? 2.0f : 1.0f) * t[i]);
  }
  if constexpr (step == 1) {
    // Rows likewise, and cos 3φ = 4c³ − 3c, sin 3φ = 4c²s − s, cos 4φ = 8(c⁴ − c²) + 1, sin 4φ = 8c³s − 4cs.
    constexpr bool long_basis = M::rows == 9;
    const float own = j < 3 ? 1 : j < 5 ? 2 : j < 7 ? 4 : 8;
    const float factor = j < 3 || j == 4 ? 0 : j == 5 ? -3 : j == 7 ? 1 : j == 8 ? -4 : -1;
    const int other = j == 5 ? 1 : j == 6 ? 2 : j == 8 ? 4 : 0;
    const float value = long_basis && j == 7 ? t[i] - t[15 + l] : t[i];
    return fmaf(factor, t[5 * (long_basis ? other : 0) + l], own * value);
  }
  // Φ_{5j+l} = Σ u·v·e^{i·jφ}·e^{ilθ}, |l| <= 2: cos·cos − sin·sin, sin·cos + cos·sin.
  const int k = (i + 1) / 2, row = (k + 2) / 5, column = k - 5 * row, size = column < 0 ? -column : column;
  const bool imaginary = i > 0 && i % 2 == 0;
  const int row_cosine = row == 0 ? 0 : 2 * row - 1, row_sine = 2 * row;
  const int column_cosine = size == 0 ? 0 : 2 * size - 1, column_sine = 2 * size;
  const float first = imaginary && row == 0 ? 0 : 1;  // a sine of 0 is 0
  const float second = column == 0 || (!imaginary && row == 0) ? 0 : imaginary == (column > 0) ? 1 : -1;
  return fmaf(second, t[5 * (imaginary ? row_cosine : row_sine) + column_sine],
              first * t[5 * (imaginary ? row_sine : row_cosine) + column_cosine]);
}

}  // namespace fljsd::cuda
