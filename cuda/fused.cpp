// SPDX-License-Identifier: Apache-2.0
// Stages `fused` and `fused-two-pass`. Promise: losses with fp32 logits and without storing any; `fused` in
// little more time than cuBLASLt needs for the two projections.
//
//   fused:           one kernel (hopper/sweep.cuh): both projections, tile by tile in registers, folded into
//                    the one-pass statistics of one_pass_moments.cuh; then D of every token from its records
//                    (one_pass_finish.cu). A second kernel does again what the first one, the fast one,
//                    marked as beyond it; as a rule that is nothing
//   fused-two-pass:  the same kernel twice: first for where every row is normalised, then, with all products
//                    once more, for D by its definition (hopper/exact_sums.cuh). Twice the time; no
//                    quadrature, so that it says what the one pass is off by. At beta = 0 and 1 one pass is
//                    exact, and both stages are the same
//   backward:        of fused: `unfused` if memory_budget has room for all logits, four products; otherwise
//                    chunked-vocab, which computes them again, six products. Gradients from one pass need
//                    statistics of 47 sums, for which the kernel's registers are too few: with smaller tiles
//                    it was slower than cuBLASLt's products and a kernel of their own, whose last tile of
//                    logits can be kept for the second sweep besides (docs/kernels.md). Of fused-two-pass:
//                    chunked-tokens, which is exact too
//
// T tokens, V vocab, H hidden. FLOPs 4·T·V·H a pass; nothing of size T·V in memory (fused_sweep.h).
//
// Where the kernel does not serve, chunked-vocab does (for fused-two-pass chunked-tokens), within 64 MB for
// 8192 tokens: another GPU than compute capability 9.0, fp32 or mixed inputs, rows that do not start at
// multiples of 16 bytes (leading dimensions are known to the plan, pointers to the call), a memory_budget
// that has no room for the records. fljsd_plan_describe() says which.
//
// Error budget in D of a token. One pass: quadrature 2.2e-6, sums in fp32 1.5e-6 (docs/one_pass.md). Two
// passes: hopper/exact_sums.cuh.
#include <algorithm>
#include <optional>

#include "cuda/fused_sweep.h"
#include "cuda/hopper/two_pass_finish.h"
#include "cuda/stage.h"

namespace fljsd::cuda {
namespace {

using Passes = FusedSweep::Passes;

// What fallback_budget() is for chunked-vocab, for chunked-tokens: the logits of 16 tokens at a time.
Index two_pass_fallback_budget(const Settings& s) {
  return 30'000'000 + 128 * s.vocab + 64 * s.tokens;
}

class Fused final : public Stage {
 public:
  Fused(const Settings& settings, Passes passes)
      : settings_(settings),
        two_passes_(passes == Passes::two && divergence_kind(settings.beta) == Divergence::mixture) {
    const Settings& s = settings_;
    if (s.tokens == 0) return;
    Settings forward = s;
    forward.input_grad = forward.weight_grad = forward.bias_grad = false;
    statistics_ = OnePassStatistics(forward);
    sweep_.emplace(forward, statistics_, two_passes_ ? Passes::two : Passes::one);
    sweep_->fit(sweep_bytes());
    if (sweep_->obstacle().empty()) {
      // A budget is meant for the pass that needs most, and chunks are the sweep's: neither is for calls that
      // another stage serves only because of an address.
      const Index fallback = two_passes_ ? two_pass_fallback_budget(s) : fallback_budget(s);
      forward.memory_budget = s.memory_budget == 0 ? fallback : std::min(s.memory_budget, fallback);
      forward.chunk_tokens = forward.chunk_vocab = 0;
    }
    instead_[FLJSD_FORWARD] = two_passes_ ? make_chunked_tokens(forward) : make_chunked_vocab(forward);
    if (s.any_grad()) instead_[FLJSD_FORWARD_BACKWARD] = make_backward();
  }

  Index workspace_bytes(fljsd_pass pass) const override {
    if (settings_.tokens == 0) return 0;
    const Index bytes = instead_[pass]->workspace_bytes(pass);
    if (pass == FLJSD_FORWARD_BACKWARD || !sweep_->obstacle().empty()) return bytes;
    return std::max(bytes, sweep_bytes());
  }

  void run(fljsd_pass pass, const Call& call) const override {
    if (!serves(pass, call.tensors)) {
      instead_[pass]->run(pass, call);
      return;
    }
    Workspace workspace(call.workspace);
    const Arrays a = lay_out(workspace, &call);
    if (two_passes_) {
      run_two_passes(call, a);
    } else {
      run_one_pass(call, a);
    }
    finish_losses(settings_, call, a.batch.token_loss);
  }

  void tune(fljsd_pass pass, const Call& call) override {
    if (!serves(pass, call.tensors)) instead_[pass]->tune(pass, call);
  }

  std::string describe() const override {
    if (settings_.tokens == 0) return "";
    const std::string instead = two_passes_ ? "chunked-tokens" : "chunked-vocab";
    std::string text;
    if (sweep_->obstacle().empty()) {
      text = "forward: " + sweep_->describe() +
             "; tensors that do not start at multiples of 16 bytes: " + instead + "\n";
    } else {
      text = "forward: " + instead + ", because " + sweep_->obstacle() + "\n" +
             instead_[FLJSD_FORWARD]->describe();
    }
    const auto& backward = instead_[FLJSD_FORWARD_BACKWARD];
    if (!backward) return text;
    const std::string how = stored_       ? "unfused, all logits stored"
                            : two_passes_ ? "chunked-tokens"
                                          : "chunked-vocab, logits computed twice";
    return text + "forward and backward: " + how + "\n" + backward->describe();
  }

 private:
  struct Arrays {
    BatchArrays batch;
    FusedSweep::Arrays sweep;
    RowReference* references = nullptr;  // two passes
  };

  // Gradients, from logits that are stored if the caller's budget has room for them.
  std::unique_ptr<Stage> make_backward() {
    Settings s = settings_;
    s.losses_alone = false;  // instead_ has another stage for them
    if (two_passes_) return make_chunked_tokens(s);
    if (s.memory_budget > 0) {
      Settings all = s;
      all.memory_budget = 0;  // what it needs, not whether that is allowed
      auto stored = make_unfused(all);
      stored_ = stored->workspace_bytes(FLJSD_FORWARD_BACKWARD) <= s.memory_budget;
      if (stored_) return stored;
    }
    return make_chunked_vocab(s);
  }

  // Whether the sweep can do this pass with these tensors.
  bool serves(fljsd_pass pass, const fljsd_tensors& tensors) const {
    return pass == FLJSD_FORWARD && sweep_->serves(tensors);
  }

  Arrays lay_out(Workspace& workspace, const Call* call) const {
    Arrays a;
    a.batch = begin_batch(settings_, FLJSD_FORWARD, workspace, call);
    a.sweep = sweep_->lay_out(workspace);
    if (two_passes_) {
      a.references = reinterpret_cast<RowReference*>(
          workspace.take<std::byte>(settings_.tokens * hopper::row_reference_bytes));
    }
    return a;
  }
  Index sweep_bytes() const {
    if (!sweep_->obstacle().empty()) return 0;
    Workspace measure(nullptr);
    lay_out(measure, nullptr);
    return measure.used();
  }

  void run_one_pass(const Call& call, const Arrays& a) const {
    sweep_->run(call, a.batch, a.sweep);
    const Index floats = statistics_.record_floats(FLJSD_FORWARD);
    for (const FusedSweep::TokenGroup& g : sweep_->groups()) {
      statistics_.finish(call.stream, FLJSD_FORWARD, {a.sweep.records + g.record_offset * floats, g.slots},
                         g.tokens, ignored_tokens(settings_, call, g.first_token),
                         a.batch.token_loss + g.first_token, nullptr);
    }
  }

  void run_two_passes(const Call& call, const Arrays& a) const {
    const auto references_of = [&](const FusedSweep::TokenGroup& g) {
      return hopper::row_reference_at(a.references, g.first_token);
    };
    sweep_->run(call, a.batch, a.sweep, hopper::SweepSums::normalisers, nullptr);
    for (const FusedSweep::TokenGroup& g : sweep_->groups()) {
      hopper::launch_row_references(call.stream, statistics_.mixture,
                                    a.sweep.records + g.record_offset * hopper::normaliser_record, g.slots,
                                    g.tokens, references_of(g));
    }
    sweep_->run(call, a.batch, a.sweep, hopper::SweepSums::terms, a.references);
    for (const FusedSweep::TokenGroup& g : sweep_->groups()) {
      hopper::launch_exact_losses(call.stream, a.sweep.records + g.record_offset * hopper::terms_record,
                                  g.slots, g.tokens, references_of(g),
                                  ignored_tokens(settings_, call, g.first_token),
                                  a.batch.token_loss + g.first_token);
    }
  }

  Settings settings_;
  bool two_passes_;
  bool stored_ = false;  // whether gradients come from stored logits
  OnePassStatistics statistics_;
  std::optional<FusedSweep> sweep_;
  std::unique_ptr<Stage> instead_[2];  // by pass: serves where the sweep does not
};

}  // namespace

std::unique_ptr<Stage> make_fused(const Settings& settings) {
  return std::make_unique<Fused>(settings, Passes::one);
}
std::unique_ptr<Stage> make_fused_two_pass(const Settings& settings) {
  return std::make_unique<Fused>(settings, Passes::two);
}

}  // namespace fljsd::cuda
