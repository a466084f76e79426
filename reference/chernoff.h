// SPDX-License-Identifier: Apache-2.0
// One-pass, mergeable generalized Jensen–Shannon divergence: the public face. docs/one_pass.md derives it.
//
// One sweep over a row of logits, in any order and any pieces, leaves a few sums per token. The divergence
// and the row constants of its gradient follow from those sums alone, so neither the logits nor their
// normalisers are needed before the sweep. This is a CPU model of the arithmetic of the fused kernels:
// float32 sums by tiles, finalised in float64.
//
//   OnePassPlan plan({.beta = 0.5});                      // fits the weights (tens of ms): once per beta
//   OnePassRow row = one_pass_row(x, y, plan);            // first sweep
//   one_pass_gradient(x, y, row, plan, dlogits);          // second sweep, when a gradient is wanted
//
// The building blocks, for other arithmetics and other ways to split a row, are in reference/chernoff/: the
// rules (quadrature.h), their largest error over all rows (worst_case.h), and the mergeable states (state.h,
// kl_state.h).
#pragma once

#include <span>
#include <vector>

#include "reference/chernoff/accumulator.h"
#include "reference/chernoff/phases.h"
#include "reference/chernoff/quadrature.h"
#include "reference/dtype.h"

namespace fljsd {

struct OnePassConfig {
  double beta = 0.5;        // in [0, 1]; the endpoints are KL(p‖q) and KL(q‖p) and use no quadrature
  int last_frequency = 12;  // K: frequencies 0, h, 2h, ..., K·h
  double period = 32;       // L = 2π/h, in nats; a power of two makes angles in turns exact multiples
  WeightKind weights = WeightKind::minimax;
  PhaseMethod phases = PhaseMethod::product_basis;
  MergeSum merge = MergeSum::compensated;
  Index tile = 160;  // vocabulary entries summed in plain float32 before they are merged: 1 to 4096
  int lanes = 4;     // 1, 4 or 16 interleaved partial sums of a tile (a tile's row lies in four threads)
  double headroom =
      0;  // nats a tile's maximum may lie above the reference before the sums are rescaled: 0 to 60
};

// A configuration that was checked, and its weights. Immutable, and safe to share by threads.
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
  double divergence;  // D; in [0, h(beta)] for 0 < beta < 1, in [0, inf] at the endpoints
  double kappa;  // Σ_v q_v·ln(1 + e^{s_v}) with s_v = ln(beta·p_v / ((1−beta)·q_v)); NaN at beta = 0, 1
  double student_kl;  // KL(q‖M) = −ln(1−beta) − kappa; KL(q‖p) at beta = 1; NaN at beta = 0
  double teacher_kl;  // KL(p‖M); KL(p‖q) at beta = 0; NaN at beta = 1
  LogSumExp student;  // of x
  LogSumExp teacher;  // of y
};

// The first sweep over one row: student logits x and teacher logits y, both [vocab], −inf allowed. float32
// arithmetic within tiles; float64 to finalise. Logits rounded to bf16 beforehand model a kernel that stores
// them so. Throws std::invalid_argument when the sizes differ.
OnePassRow one_pass_row(std::span<const float> x, std::span<const float> y, const OnePassPlan& plan);

// The same for every row of two row-major matrices [rows, vocab] with leading dimensions in elements; uses
// all cores.
std::vector<OnePassRow> one_pass_rows(const float* x, Index x_stride, const float* y, Index y_stride,
                                      Index rows, Index vocab, const OnePassPlan& plan);

// What the second sweep found out about the row's constant: kappa for 0 < beta < 1, KL(q‖p) at beta = 1; beta
// = 0 has none. The sweep forms Σ_v q_v·(its term) in passing, and that sum is the constant, without any
// quadrature. Since the true gradient adds up to 0 over the row, the error of a constant is also what the
// gradient adds up to.
struct OnePassCertificate {
  double swept;  // the constant, as swept; NaN at beta = 0
  double error;  // the row's constant − swept: |error| times the factor (1−beta, or 1) is Σ_v |error of
                 // dlogits_v|
  double gradient_size;  // Σ_v |dlogits_v| without that factor
  bool missed;           // !(|error| <= tolerance·gradient_size + 2^-51): this row should be swept again
};

// The second sweep: dlogits[v] = dD/dx_v in float32 arithmetic, before temperature and reduction factors.
//   (1−beta)·q_v·(kappa − ln(1 + e^{s_v}));  q_v − p_v at beta = 0;  q_v·(ln(q_v/p_v) − KL(q‖p)) at beta = 1
// Throws std::invalid_argument when the sizes differ.
OnePassCertificate one_pass_gradient(std::span<const float> x, std::span<const float> y,
                                     const OnePassRow& row, const OnePassPlan& plan, std::span<float> dlogits,
                                     double tolerance = 1e-3);

// The row with the constant that a second sweep found, for the sweep that repeats a missed row.
OnePassRow with_swept_constant(const OnePassRow& row, const OnePassCertificate& certificate,
                               const OnePassPlan& plan);

// Errors of the float32 elementary functions. The defaults are those of float_functions.h; a GPU's are
// larger.
struct ElementaryErrors {
  double exp2 = 0x1p-23;         // relative, of 2^a
  double sine_cosine = 0x1p-23;  // absolute, of sin and cos, the argument being exact
};

// Upper bounds of |computed − true| for any row of at most `vocab` float32 logits, true meaning exact
// arithmetic on those logits: the largest error of the rule (worst_case.h) plus that of float32.
// docs/one_pass.md, section 8.
struct OnePassErrorBound {
  double divergence;  // of D
  double
      scaled_student_kl;  // of (1−beta)·KL(q‖M), the form in which it enters dlogits; equally (1−beta)·kappa
  double scaled_teacher_kl;  // of beta·KL(p‖M)
  double log_sum;            // of LogSumExp::log_sum, first order
  double quadrature;         // the share of `divergence` that would remain in exact arithmetic
};
// At beta = 0 and 1, where D is unbounded, the error also grows with largest_gap, the largest max(b) − b_v
// over finite b_v of the row b that is divided by (x at beta = 0, y at beta = 1); then only `divergence` and
// the KL equal to it are meant, and the other is NaN.
OnePassErrorBound one_pass_error_bound(const OnePassPlan& plan, Index vocab, double largest_gap = 0,
                                       const ElementaryErrors& elementary = {});

}  // namespace fljsd
