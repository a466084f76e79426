// SPDX-License-Identifier: Apache-2.0
// Frequencies k = 0..12 from 25 moments: k = 5j + l with j = 0, 1, 2 and −2 <= l <= 2.
//
// Moment (a, b) is Σ g·F_a(5θ)·F_b(θ) with F = 1, cos, sin, cos², cos·sin: one multiplication and one
// addition each, or one fused multiply-add, where a recurrence takes two of each per frequency and component.
// cos 2θ = 2cos²θ − 1 and sin 2θ = 2cos θ·sin θ turn F into harmonics, and the addition theorem joins 5jθ and
// lθ; both once per row.
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>

namespace fljsd {

constexpr std::size_t product_moments = 25;
constexpr int product_last_frequency = 12;

// Re Φ_k = Σ real[5a + b]·moment(a, b), Im Φ_k likewise.
struct ProductCoefficients {
  std::array<double, product_moments> real, imag;
};

constexpr ProductCoefficients product_coefficients(int k) {
  // cos nθ and sin nθ in terms of F(θ), n = 0, 1, 2
  constexpr double cosine[3][5] = {{1, 0, 0, 0, 0}, {0, 1, 0, 0, 0}, {-1, 0, 0, 2, 0}};
  constexpr double sine[3][5] = {{0, 0, 0, 0, 0}, {0, 0, 1, 0, 0}, {0, 0, 0, 0, 2}};
  const int j = (k + 2) / 5, l = k - 5 * j;
  const int size = l < 0 ? -l : l, side = l < 0 ? -1 : 1;
  ProductCoefficients result{};
  for (int a = 0; a < 5; ++a) {
    for (int b = 0; b < 5; ++b) {
      const std::size_t i = static_cast<std::size_t>(5 * a + b);
      result.real[i] = cosine[j][a] * cosine[size][b] - side * (sine[j][a] * sine[size][b]);
      result.imag[i] = sine[j][a] * cosine[size][b] + side * (cosine[j][a] * sine[size][b]);
    }
  }
  return result;
}

}  // namespace fljsd
