// SPDX-License-Identifier: Apache-2.0
// Stage `chunked-vocab`. Promise: losses without logits in memory, on any GPU; gradients by a second sweep.
//
//   forward:   for each block of tokens, for each tile of the vocabulary: X, Y tiles by cuBLASLt, folded into
//              one-pass statistics (one_pass_moments.cuh); then D and the row constants of every token
//   backward:  the same with all tokens in a tile; then a second sweep over the tiles: X, Y again, dlogits
//   from
//              the row constants, and
//                student_input_grad += dlogits · weight tile      (fp32, rounded once at the end)
//                student_weight_grad tile = dlogitsᵀ · student_input / (n·T)          (complete: rounded
//                once)
//              It begins with the tile that the first sweep ended with, whose logits are still there.
//              Dlogits add up to 0, or the constants were wrong and the token is repaired
//              (kappa_certificate.h)
//
// T tokens, V vocab, H hidden, tiles of C entries. FLOPs 4·T·V·H forward, 12·T·V·H − 4·T·C·H with gradients:
// the price of not keeping all logits is at most two of six products, and memory buys it back, a share C/V of
// it. Bytes forward: weights 4·V·H once for each block of tokens; logits 8·T·V written and read once. A tile
// of a product starts and ends with most multiprocessors idle, so tiles are as large as their memory allows,
// and of as many whole waves of 128 x 256 pieces as fit. Memory forward: the tile (104 MB), cuBLASLt's
// workspace (16 MB) and 256 bytes a token. Backward: 10 bytes per token and tile column (1 GB, or what a
// larger budget allows), 4·T·H for the sum of the input gradient.
//
// Error budget: one_pass_moments.cuh and one_pass_weights.h; 3.7e-6 in D forward, 1.7e-6 with gradients.
// dlogits inherit q times the error of (1−beta)·kappa, and the budget of row_kernels.cu otherwise.
#include <algorithm>
#include <optional>

#include "cuda/backward_sweep.h"
#include "cuda/failure.h"
#include "cuda/one_pass_weights.h"
#include "cuda/stage.h"

namespace fljsd::cuda {
namespace {

class ChunkedVocab final : public Stage {
 public:
  explicit ChunkedVocab(const Settings& settings)
      : settings_(settings),
        kind_(divergence_kind(settings.beta)),
        mixture_(make_mixture(settings.beta, settings.temperature)) {
    const Settings& s = settings_;
    if (s.tokens == 0) return;
    if (kind_ == Divergence::mixture) {
      weights_[FLJSD_FORWARD] = make_one_pass_weights(s.beta, basis(FLJSD_FORWARD));
      if (s.any_grad())
        weights_[FLJSD_FORWARD_BACKWARD] = make_one_pass_weights(s.beta, basis(FLJSD_FORWARD_BACKWARD));
    }
    choose_tiles();
    fit_budget();
    const auto lt = std::make_shared<LtHandle>();
    for (const Index rows : {token_blocks_.size, token_blocks_.tail()}) {
      for (const Index columns : {tiles_.size, tiles_.tail()}) products_.emplace_back(lt, s, rows, columns);
    }
    if (s.any_grad()) backward_.emplace(s, lt, gradient_tiles_);
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
    const bool backward = pass == FLJSD_FORWARD_BACKWARD;
    const Index ready = backward ? sweep_gradient_tiles(call, a) : 0;
    if (!backward) sweep(call, a);
    launch_finish(call.stream, kind_, basis(pass), mixture_, weights_[pass], {a.state, slices(pass)},
                  settings_.tokens, ignored_tokens(settings_, call), a.batch.token_loss,
                  a.backward.constants);
    if (backward) backward_->run(call, a.batch, a.backward, ready, true);
    finish_losses(settings_, call, a.batch.token_loss);
  }

  // Shapes that only tails have are measured as well.
  void tune(fljsd_pass pass, const Call& call) override {
    run(pass, call);  // real data in every operand: the speed of a product depends on them
    Workspace workspace(call.workspace);
    const Arrays a = lay_out(pass, workspace, &call);
    if (pass == FLJSD_FORWARD_BACKWARD) {
      backward_->tune(call, a.batch, a.backward);
      return;
    }
    for (const bool last_block : {false, true}) {
      for (const bool last_tile : {false, true}) {
        if ((last_block && token_blocks_.tail() == token_blocks_.size) ||
            (last_tile && tiles_.tail() == tiles_.size)) {
          continue;
        }
        const Index token = last_block ? token_blocks_.start(token_blocks_.count() - 1) : 0;
        const Index entry = last_tile ? tiles_.start(tiles_.count() - 1) : 0;
        products_[(last_block ? 2u : 0u) + (last_tile ? 1u : 0u)].tune(call, a.tile, token, entry);
      }
    }
  }

  std::string describe() const override {
    if (settings_.tokens == 0) return "";
    std::string text = "forward: tiles of " + std::to_string(token_blocks_.size) + " tokens x " +
                       std::to_string(tiles_.size) + " vocabulary entries, " +
                       std::to_string(slices(FLJSD_FORWARD)) + " slices a row\n";
    for (const LogitProducts& p : products_) text += p.describe();
    if (!backward_) return text;
    return text + "forward and backward: tiles of all tokens x " + std::to_string(gradient_tiles_.size) +
           " vocabulary entries, " + std::to_string(slices(FLJSD_FORWARD_BACKWARD)) + " slices a row\n" +
           backward_->describe();
  }

 private:
  struct Arrays {
    BatchArrays batch;
    float* state = nullptr;          // [tokens, slices, state_floats]
    TileBuffers tile;                // forward only
    BackwardSweep::Arrays backward;  // with gradients
  };

  Basis basis(fljsd_pass pass) const { return pass == FLJSD_FORWARD ? Basis::twelve : Basis::twenty_two; }

  // Slices of a row: enough that the rows of a tile give every multiprocessor 16 warps.
  Index slices(fljsd_pass pass) const {
    const Index rows = pass == FLJSD_FORWARD ? token_blocks_.size : settings_.tokens;
    const Index columns = pass == FLJSD_FORWARD ? tiles_.size : gradient_tiles_.size;
    const Index warps = Index{16} * settings_.device.multiprocessors;
    return std::clamp<Index>(warps / rows, 1, std::clamp<Index>(columns / 512, 1, 16));
  }

  void choose_tiles() {
    const Settings& s = settings_;
    // 1024 tokens: eight pieces of 128, of which whole waves of 132 multiprocessors can be made (99 % of
    // three); sixteen pieces allow 97 %. That more blocks read the weights more often costs less.
    token_blocks_ = cut(s.tokens, s.chunk_tokens > 0 ? s.chunk_tokens : 1024, s.chunk_tokens > 0 ? 1 : 128);
    // Three waves of 132 pieces of 128 x 256 in fp32, of two models: 103.8 MB.
    const Index forward_bytes = std::max<Index>(104'000'000, s.memory_budget / 10 * 8);
    tiles_ = {s.valid_vocab, s.chunk_vocab > 0 ? s.chunk_vocab
                                               : whole_waves(s.device, token_blocks_.size, 8, forward_bytes)};
    // With gradients: 10 bytes an entry. What a budget leaves after smaller things goes to the tile.
    const Index bytes = std::max<Index>(1'000'000'000, s.memory_budget / 10 * 9);
    gradient_tiles_ = {s.valid_vocab, s.gradient_chunk_vocab > 0
                                          ? s.gradient_chunk_vocab
                                          : whole_waves(s.device, s.tokens, 10, bytes)};
    for (Pieces* pieces : {&tiles_, &gradient_tiles_}) pieces->size = std::min(pieces->size, s.valid_vocab);
  }

  // Halves the tiles that nobody asked for until the budget is met.
  void fit_budget() {
    const Settings& s = settings_;
    if (s.memory_budget == 0) return;
    const auto shrink = [&](fljsd_pass pass, Pieces& pieces, bool fixed) {
      while (workspace_bytes(pass) > s.memory_budget) {
        if (fixed || pieces.size <= 64) return false;
        pieces = cut(pieces.total, std::max<Index>(64, pieces.size / 2), 64);
      }
      return true;
    };
    bool fits = shrink(FLJSD_FORWARD, tiles_, s.chunk_vocab > 0);
    if (fits && s.any_grad())
      fits = shrink(FLJSD_FORWARD_BACKWARD, gradient_tiles_, s.gradient_chunk_vocab > 0);
    if (fits) return;
    const fljsd_pass pass = s.any_grad() ? FLJSD_FORWARD_BACKWARD : FLJSD_FORWARD;
    fail(FLJSD_WORKSPACE_TOO_SMALL, "memory_budget is ", s.memory_budget,
         " bytes, but with its smallest tiles stage chunked-vocab needs ", workspace_bytes(pass), ".");
  }

  Arrays lay_out(fljsd_pass pass, Workspace& workspace, const Call* call) const {
    const Settings& s = settings_;
    Arrays a;
    a.batch = begin_batch(s, pass, workspace, call);
    a.state = workspace.take<float>(s.tokens * slices(pass) * state_floats(kind_, basis(pass)));
    if (pass == FLJSD_FORWARD) {
      a.tile = take_tile(workspace, token_blocks_.size, tiles_.size);
    } else {
      a.backward = BackwardSweep::lay_out(s, gradient_tiles_, workspace);
    }
    return a;
  }

  // Statistics of all tokens, a block of tokens after the other.
  void sweep(const Call& call, const Arrays& a) const {
    const Index record = slices(FLJSD_FORWARD) * state_floats(kind_, basis(FLJSD_FORWARD));
    for (Index block = 0; block < token_blocks_.count(); ++block) {
      const Index token = token_blocks_.start(block), rows = token_blocks_.length(block);
      for (Index i = 0; i < tiles_.count(); ++i) {
        const Index entry = tiles_.start(i), columns = tiles_.length(i);
        products_[(rows == token_blocks_.size ? 0u : 2u) + (columns == tiles_.size ? 0u : 1u)].run(
            call, a.tile, token, entry);
        launch_accumulate(call.stream, kind_, basis(FLJSD_FORWARD), mixture_,
                          weights_[FLJSD_FORWARD].phase_step,
                          logit_tile(settings_, call, a.batch, a.tile, token, rows, entry, columns),
                          {a.state + token * record, slices(FLJSD_FORWARD)}, i == 0);
      }
    }
  }

  // The same for the backward pass, in its tiles of all tokens. The second sweep begins with the tile that
  // this one ends with, and that should be one of full size: so the last tile, which may be shorter, goes
  // first. Returns the tile whose logits are left.
  Index sweep_gradient_tiles(const Call& call, const Arrays& a) const {
    constexpr fljsd_pass pass = FLJSD_FORWARD_BACKWARD;
    const Index count = gradient_tiles_.count();
    Index i = 0;
    for (Index step = 0; step < count; ++step) {
      i = step == 0 ? count - 1 : step - 1;
      launch_accumulate(call.stream, kind_, basis(pass), mixture_, weights_[pass].phase_step,
                        backward_->run_logits(call, a.batch, a.backward, i), {a.state, slices(pass)},
                        step == 0);
    }
    return i;
  }

  Settings settings_;
  Divergence kind_;
  Mixture mixture_;
  OnePassWeights weights_[2];  // by pass
  Pieces token_blocks_, tiles_, gradient_tiles_;
  std::vector<LogitProducts> products_;    // [rows: size, tail][columns: size, tail], forward only
  std::optional<BackwardSweep> backward_;  // with gradients
};

}  // namespace

std::unique_ptr<Stage> make_chunked_vocab(const Settings& settings) {
  return std::make_unique<ChunkedVocab>(settings);
}

}  // namespace fljsd::cuda
