// SPDX-License-Identifier: Apache-2.0
// The first sweep in float32, tile by tile: a model of what one thread block of a fused kernel does with a
// row.
//
// Of each vocabulary entry, with the references (max_x, max_y) of its tile, in float32:
//
//   u = 2^{(x − max_x)·log2(e)/2},  v = 2^{(y − max_y)·log2(e)/2}      two exponentials for three sums
//   Sx += u·u,  Sy += v·v,  g = u·v                                    (equal logits give equal sums, bit for
//   bit) turns = ((y − max_y) − (x − max_x))/period + offset                less the nearest whole number Φ_k
//   += g·e^{2πik·turns}
//
// `offset` belongs to the tile: it takes the phase from the tile's references to ρ (state.h), so that a rise
// of a maximum costs one real factor and no rotation. Subtracting the maxima first keeps the error of an
// entry's phase proportional to its distance from the maxima, which its modulus discounts. Rounded once, u·u
// and u·v agree when u = v.
#pragma once

#include <span>

#include "reference/chernoff/kl_state.h"
#include "reference/chernoff/state.h"
#include "reference/dtype.h"

namespace fljsd {

struct SweepConfig {
  int last_frequency = 12;
  double period = 32;
  PhaseMethod phases = PhaseMethod::product_basis;
  MergeSum merge = MergeSum::compensated;
  Index tile = 160;  // entries summed in plain float32, 1 to 4096
  int lanes = 4;     // 1, 4 or 16: interleaved partial sums of a tile, then added as a binary tree
  double headroom =
      0;  // nats a tile's maximum may lie above the reference before the sums are rescaled, 0 to 60
};

// The sums of a row, x and y of equal size. Moments of product_basis are turned into Φ_k in float64.
ChernoffSums<double> sweep_row(std::span<const float> x, std::span<const float> y, const SweepConfig& config);

// Likewise for KL(a‖b).
KlSums<double> sweep_row_kl(std::span<const float> a, std::span<const float> b, const SweepConfig& config);

}  // namespace fljsd
