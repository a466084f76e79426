// SPDX-License-Identifier: Apache-2.0
// Stage `chunked-vocab`. Promise: losses without logits in memory, on any GPU; gradients by a second sweep.
//
//   forward:   for each block of tokens, for each tile of the vocabulary: X, Y tiles by cuBLASLt, folded into
//              one-pass statistics (tiled_sweep.h, one_pass_moments.cuh); then D and the row constants of
//              every token
//   backward:  the same with all tokens in a tile; then a second sweep over the tiles: X, Y again, dlogits
//              from the row constants, and from those the gradients (backward_sweep.h). Dlogits add up to 0,
//              or the constants were wrong and the token is repaired (kappa_certificate.h)
//
// T tokens, V vocab, H hidden, tiles of C entries. FLOPs 4·T·V·H forward, 12·T·V·H − 4·T·C·H with gradients:
// the price of not keeping all logits is at most two of six products, and memory buys it back, a share C/V of
// it. Bytes forward: weights 4·V·H once for each block of tokens; logits 8·T·V written and read once. Memory
// forward: the tile (104 MB), cuBLASLt's workspace (16 MB) and records of 256 bytes, two a token where
// a tile has 1024 tokens, more (up to 16) where it has fewer. Backward: 10 bytes per token and tile column
// (1 GB, or what a larger budget allows), 4·T·H for the sum of the input gradient.
//
// Error budget: one_pass_moments.cuh and one_pass_weights.h; 3.7e-6 in D forward, 1.7e-6 with gradients.
// dlogits inherit q times the error of (1−beta)·kappa, and the budget of row_kernels.cu otherwise.
#include <optional>

#include "cuda/stage.h"
#include "cuda/tiled_sweep.h"

namespace fljsd::cuda {
namespace {

class ChunkedVocab final : public Stage {
 public:
  explicit ChunkedVocab(const Settings& settings) : settings_(settings) {
    const Settings& s = settings_;
    if (s.tokens == 0) return;
    statistics_ = OnePassStatistics(s);
    const auto lt = std::make_shared<LtHandle>();
    for (const fljsd_pass pass : {FLJSD_FORWARD, FLJSD_FORWARD_BACKWARD}) {
      if (!s.has(pass)) continue;
      TiledSweep& sweep = sweeps_[pass].emplace(s, statistics_, pass);
      sweep.fit(s.memory_budget, [&] { return workspace_bytes(pass); });
      sweep.prepare(lt);
    }
  }

  Index workspace_bytes(fljsd_pass pass) const override {
    if (settings_.tokens == 0) return 0;
    Workspace measure(nullptr);
    lay_out(pass, measure, nullptr);
    return measure.used();
  }

  void run(fljsd_pass pass, const Call& call) const override {
    Workspace workspace(call.workspace);
    const Arrays a = lay_out(pass, workspace, &call);
    const TiledSweep& sweep = *sweeps_[pass];
    const OnePassState sums = sweep.run_sums(call, a.batch, a.sweep);
    statistics_.finish(call.stream, pass, sums, settings_.tokens, ignored_tokens(settings_, call),
                       a.batch.token_loss, a.sweep.backward.constants);
    if (pass == FLJSD_FORWARD_BACKWARD) sweep.run_gradients(call, a.batch, a.sweep, true);
    finish_losses(settings_, call, a.batch.token_loss);
  }

  void tune(fljsd_pass pass, const Call& call) override {
    run(pass, call);
    Workspace workspace(call.workspace);
    const Arrays a = lay_out(pass, workspace, &call);
    sweeps_[pass]->tune(call, a.batch, a.sweep);
  }

  std::string describe() const override {
    if (settings_.tokens == 0) return "";
    const auto& [forward, backward] = sweeps_;
    return (forward ? "forward: " + forward->describe() : "") +
           (backward ? "forward and backward: " + backward->describe() : "");
  }

 private:
  struct Arrays {
    BatchArrays batch;
    TiledSweep::Arrays sweep;
  };
  Arrays lay_out(fljsd_pass pass, Workspace& workspace, const Call* call) const {
    Arrays a;
    a.batch = begin_batch(settings_, pass, workspace, call);
    a.sweep = sweeps_[pass]->lay_out(workspace);
    return a;
  }

  Settings settings_;
  OnePassStatistics statistics_;
  std::optional<TiledSweep> sweeps_[2];  // by pass
};

}  // namespace

std::unique_ptr<Stage> make_chunked_vocab(const Settings& settings) {
  return std::make_unique<ChunkedVocab>(settings);
}

}  // namespace fljsd::cuda
