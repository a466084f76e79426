// SPDX-License-Identifier: Apache-2.0
// What the row mathematics (row_divergence.cuh) needs to know about beta and temperature, computed once in
// double.
#pragma once

namespace fljsd::cuda {

// The three cases of the divergence; kernels are compiled for each.
enum class Divergence {
  teacher_kl,  // beta = 0: KL(p‖q)
  mixture,     // 0 < beta < 1
  student_kl,  // beta = 1: KL(q‖p)
};

// Passed to kernels by value. "Bits" are units of log 2: logarithms to base 2 cost one instruction less than
// natural ones.
struct Mixture {
  float scale;       // 1/temperature
  float log2_scale;  // log2(e)/temperature: e^{x/T} = 2^{x·log2_scale}
  float beta;
  float one_minus_beta;
  // Pairs: [0] where q >= p, [1] where p > q. `other` is the share in M of the model with the smaller
  // probability.
  float other[2];        // beta, 1−beta
  float larger[2];       // 1−beta, beta
  float ratio[2];        // other/larger
  float log2_larger[2];  // log2(larger)
  float logit_bits[2];   // 0, logit(beta) in bits
  bool small_share;      // other can be so small that log(1 − other·(1 − e)) needs log1p
  // Taylor coefficients in d (nats) for |d| < series_limit, of functions in bits; row_divergence.cuh says of
  // which.
  static constexpr float series_limit = 0.25f;
  float divergence_series[6];  // of the divergence term over q·d²
  float kl_series[6];          // of the KL(q‖M) term over q·d²
  float log_series[7];         // of log2(M/q) over d
};

Divergence divergence_kind(double beta);
Mixture make_mixture(double beta, double temperature);

}  // namespace fljsd::cuda
