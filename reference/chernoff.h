// SPDX-License-Identifier: Apache-2.0
// One-pass, mergeable generalized Jensen–Shannon divergence: the public face. docs/one_pass.md derives it.
//
// One sweep over a row of logits, in any order and any pieces, leaves a few sums per token. The divergence
// and the row constants of its gradient follow from those sums alone, so neither the logits nor their
// normalisers are needed before the sweep. This is a CPU model of the arithmetic of the fused kernels:
// float32 sums by tiles, finalised in float64.
//
//   OnePassPlan plan({.beta = 0.5});                      // fits the weights: once per beta
//   OnePassRow row = one_pass_row(x, y, plan);            // first sweep
//   one_pass_gradient(x, y, row, plan, dlogits);          // second sweep, when a gradient is wanted
#pragma once

#include <span>
#include <vector>

#include "reference/chernoff/quadrature.h"
#include "reference/dtype.h"

namespace fljsd {

// How e^{ikθ}, k = 0..K, is formed from θ. All give the same sums but for rounding.
enum class PhaseMethod {
  sincos,         // sine and cosine of every kθ
  recurrence,     // z_{k+1} = 2cos θ·z_k − z_{k−1}
  stride4,        // z_{k+4} = 2cos 4θ·z_k − z_{k−4}: four short chains
  product_basis,  // moments of {1, c, s, c², cs}(θ) ⊗ {1, c, s, c², cs}(5θ), k = 5j + l; needs K <= 12
};
const char* name(PhaseMethod method);

// How the sums of a tile are added to those of the row.
enum class MergeSum {
  plain,        // one float32 addition
  compensated,  // two-float sums: the error does not grow with the number of tiles
};
const char* name(MergeSum merge);

struct OnePassConfig {
  double beta = 0.5;        // in [0, 1]; the endpoints are KL(p‖q) and KL(q‖p) and use no quadrature
  int last_frequency = 12;  // K: frequencies 0, h, 2h, ..., K·h
  double period = 32;       // L = 2π/h
  WeightKind weights = WeightKind::minimax;
  PhaseMethod phases = PhaseMethod::product_basis;
  MergeSum merge = MergeSum::compensated;
  Index tile = 160;     // vocabulary entries summed in plain float32 before they are merged
  double headroom = 0;  // nats that a maximum may rise above the reference before the sums are rescaled
};

// A configuration that was checked and its weights. Immutable; cheap to copy, and safe to share by threads.
class OnePassPlan {
 public:
  // Throws std::invalid_argument with one sentence naming the field, its value and what is allowed.
  explicit OnePassPlan(const OnePassConfig& config);

  const OnePassConfig& config() const { return config_; }
  // The weights; empty at beta = 0 and 1.
  const Quadrature& quadrature() const { return quadrature_; }

 private:
  OnePassConfig config_;
  Quadrature quadrature_;
};

// log Σ e^{x_v} = max + log_sum. The two are kept apart because their sum rounds: near 1024 a float32 sum is
// off by up to 6e-5, which alone would spoil a gradient.
struct LogSumExp {
  double max;
  double log_sum;
};

// What the first sweep leaves, in nats. All NaN for a row in which a model has no distribution (NaN, +inf, or
// no finite logit).
struct OnePassRow {
  double divergence;  // D; in [0, h(beta)] for 0 < beta < 1
  double kappa;  // Σ_v q_v·ln(1 + e^{s_v}) with s_v = ln(beta·p_v / ((1−beta)·q_v)); NaN at beta = 0, 1
  double student_kl;  // KL(q‖M) = −ln(1−beta) − kappa; KL(q‖p) at beta = 1; NaN at beta = 0
  double teacher_kl;  // KL(p‖M); KL(p‖q) at beta = 0; NaN at beta = 1
  LogSumExp student;  // of x
  LogSumExp teacher;  // of y
};

// The first sweep over one row: student logits x and teacher logits y, both [vocab], −inf allowed. float32
// arithmetic within tiles; float64 to finalise. Logits rounded to bf16 beforehand model a kernel that stores
// them so.
OnePassRow one_pass_row(std::span<const float> x, std::span<const float> y, const OnePassPlan& plan);

// The same for every row of two row-major matrices [rows, vocab] with leading dimensions in elements; uses
// all cores.
std::vector<OnePassRow> one_pass_rows(const float* x, Index x_stride, const float* y, Index y_stride,
                                      Index rows, Index vocab, const OnePassPlan& plan);

// What the second sweep found. It sums kappa exactly as it goes, because it forms q_v·ln(1 + e^{s_v}) anyway.
struct OnePassCertificate {
  double swept_kappa;  // Σ_v q_v·ln(1 + e^{s_v}); at beta = 1, KL(q‖p); NaN at beta = 0
  double error;        // row.kappa − swept_kappa: Σ_v |error of dlogits_v| is at least (1−beta)·|error|
  bool missed;         // !(|error| <= tolerance·swept_kappa): redo this row with kappa = swept_kappa
};

// The second sweep: dlogits[v] = dD/dx_v in float32 arithmetic, before temperature and reduction factors.
//   (1−beta)·q_v·(kappa − ln(1 + e^{s_v}));  q_v − p_v at beta = 0;  q_v·(ln(q_v/p_v) − KL(q‖p)) at beta = 1
OnePassCertificate one_pass_gradient(std::span<const float> x, std::span<const float> y,
                                     const OnePassRow& row, const OnePassPlan& plan, std::span<float> dlogits,
                                     double tolerance = 1e-3);

// Upper bounds of |computed − true| for any row of at most `vocab` float32 logits, true meaning exact
// arithmetic on those logits. docs/one_pass.md derives them.
struct OnePassErrorBound {
  double divergence;  // of D
  double
      scaled_student_kl;  // of (1−beta)·KL(q‖M), the form in which it enters dlogits; equally (1−beta)·kappa
  double scaled_teacher_kl;  // of beta·KL(p‖M)
};
OnePassErrorBound one_pass_error_bound(const OnePassPlan& plan, Index vocab);

}  // namespace fljsd
