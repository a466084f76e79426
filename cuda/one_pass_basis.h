// SPDX-License-Identifier: Apache-2.0
// Frequencies and weights of the one-pass statistics.
#pragma once

namespace fljsd::cuda {

// Which frequencies k·h, k = 0..last, the statistics hold.
enum class Basis {
  twelve,      // k <= 12, 25 moments: the loss
  twenty_two,  // k <= 22, 45 moments: gradients too, whose constant kappa can be small and must be good to
               // its own size
};
constexpr int last_frequency(Basis basis) {
  return basis == Basis::twelve ? 12 : 22;
}

// Weights by which the sums become D and kappa (one_pass_weights.h).
struct OnePassWeights {
  float phase_step = 0;  // θ = phase_step · (difference of logits in half log2 units); h = 2π/period nats
  double beta = 0.5;
  double divergence[23] = {};
  double student_real[23] = {};
  double student_imaginary[23] = {};
};

}  // namespace fljsd::cuda
