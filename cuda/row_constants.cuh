// SPDX-License-Identifier: Apache-2.0
// The row constants of the gradient from sums in double, for stages that sum a row once.
#pragma once

#include "cuda/row_divergence.cuh"

namespace fljsd::cuda {

constexpr double bit = 0.693147180559945309;  // in nats

// log2_x, log2_y: log2 Σ e^{(x−x_ref)/T}, likewise. `constant` in nats.
FLJSD_HOST_DEVICE RowConstants row_constants(float x_ref, float y_ref, double log2_x, double log2_y,
                                             double constant, bool uses_kappa, const Mixture& m) {
  RowConstants c;
  c.ref.x_ref = x_ref;
  c.ref.y_ref = y_ref;
  c.ref.log2_sum_x = static_cast<float>(log2_x);
  c.ref.log2_sum_y = static_cast<float>(log2_y);
  const double offset = static_cast<double>(y_ref) - x_ref;
  double shift = (log2_y - log2_x) * bit;
  c.ref.offset = infinity();
  if (offset <= largest_offset && offset >= -largest_offset) {
    c.ref.offset = static_cast<float>(offset);
    shift += (offset - c.ref.offset) * static_cast<double>(m.scale);
  }
  c.ref.shift = static_cast<float>(shift);
  c.constant = static_cast<float>(constant / bit);
  c.uses_kappa = uses_kappa ? 1.0f : 0.0f;
  return c;
}

}  // namespace fljsd::cuda
