// SPDX-License-Identifier: Apache-2.0
#include "cuda/tiled_sweep.h"

#include <algorithm>

namespace fljsd::cuda {

TiledSweep::TiledSweep(const Settings& s, const OnePassStatistics& statistics, fljsd_pass pass)
    : settings_(s), statistics_(statistics), pass_(pass) {
  // What a budget leaves after smaller things goes to the tile.
  if (has_gradients()) {
    token_blocks_ = {s.tokens, s.tokens};
    const Index bytes = std::max<Index>(1'000'000'000, s.memory_budget / 10 * 9);  // 10 an entry
    tiles_ = {s.valid_vocab,
              asked_columns() > 0 ? asked_columns() : whole_waves(s.device, s.tokens, 10, bytes)};
  } else {
    // 1024 tokens: eight pieces of 128, of which whole waves of 132 multiprocessors can be made (99 % of
    // three); sixteen pieces allow 97 %. That more blocks read the weights more often costs less.
    token_blocks_ = cut(s.tokens, s.chunk_tokens > 0 ? s.chunk_tokens : 1024, s.chunk_tokens > 0 ? 1 : 128);
    // Three waves of 132 pieces of 128 x 256 in fp32, of two models: 103.8 MB.
    const Index bytes = std::max<Index>(104'000'000, s.memory_budget / 10 * 8);
    tiles_ = {s.valid_vocab,
              asked_columns() > 0 ? asked_columns() : whole_waves(s.device, token_blocks_.size, 8, bytes)};
  }
  tiles_.size = std::min(tiles_.size, s.valid_vocab);
}

Index TiledSweep::asked_columns() const {
  return has_gradients() ? settings_.gradient_chunk_vocab : settings_.chunk_vocab;
}

void TiledSweep::fit(Index budget, const std::function<Index()>& workspace_bytes) {
  while (budget > 0 && workspace_bytes() > budget) {
    if (asked_columns() > 0 || tiles_.size <= 64) {
      fail(FLJSD_WORKSPACE_TOO_SMALL, "memory_budget is ", budget,
           " bytes, but with its smallest tiles stage chunked-vocab needs ", workspace_bytes(), ".");
    }
    tiles_ = cut(tiles_.total, std::max<Index>(64, tiles_.size / 2), 64);
  }
}

void TiledSweep::prepare(const std::shared_ptr<const LtHandle>& lt) {
  if (has_gradients()) {
    backward_.emplace(settings_, lt, tiles_);
    return;
  }
  products_ = {token_blocks_, [&](Index rows) {
                 return ByLength<LogitProducts>(
                     tiles_, [&](Index columns) { return LogitProducts(lt, settings_, rows, columns); });
               }};
}

// Enough that the rows of a tile give every multiprocessor 16 warps.
Index TiledSweep::slices() const {
  const Index warps = Index{16} * settings_.device.multiprocessors;
  return std::clamp<Index>(warps / token_blocks_.size, 1, std::clamp<Index>(tiles_.size / 512, 1, 16));
}

TiledSweep::Arrays TiledSweep::lay_out(Workspace& workspace) const {
  Arrays a;
  a.records = workspace.take<float>(settings_.tokens * slices() * statistics_.record_floats(pass_));
  if (has_gradients()) {
    a.backward = BackwardSweep::lay_out(settings_, tiles_, workspace);
  } else {
    a.tile = take_tile(workspace, token_blocks_.size, tiles_.size);
  }
  return a;
}

OnePassState TiledSweep::state(const Arrays& a, Index token) const {
  return {a.records + token * slices() * statistics_.record_floats(pass_), slices()};
}

OnePassState TiledSweep::run_sums(const Call& call, const BatchArrays& batch, const Arrays& a) const {
  if (has_gradients()) {
    sweep_gradient_tiles(call, batch, a);
  } else {
    sweep_blocks(call, batch, a);
  }
  return state(a, 0);
}

void TiledSweep::accumulate(const Call& call, const LogitTile& tile, const OnePassState& state,
                            bool first) const {
  launch_accumulate(call.stream, statistics_.kind, basis_of(pass_), statistics_.mixture,
                    statistics_.weights[pass_].phase_step, tile, state, first);
}

void TiledSweep::sweep_blocks(const Call& call, const BatchArrays& batch, const Arrays& a) const {
  for (Index block = 0; block < token_blocks_.count(); ++block) {
    const Index token = token_blocks_.start(block), rows = token_blocks_.length(block);
    for (Index i = 0; i < tiles_.count(); ++i) {
      const Index entry = tiles_.start(i), columns = tiles_.length(i);
      products_.of(rows).of(columns).run(call, a.tile, token, entry);
      accumulate(call, logit_tile(settings_, call, batch, a.tile, token, rows, entry, columns),
                 state(a, token), i == 0);
    }
  }
}

// The second sweep begins with the tile that this one ends with, and that should be one of full size: so the
// last tile, which may be shorter, goes first.
Index TiledSweep::last_gradient_tile() const {
  const Index count = tiles_.count();
  return count == 1 ? 0 : count - 2;
}

void TiledSweep::sweep_gradient_tiles(const Call& call, const BatchArrays& batch, const Arrays& a) const {
  const Index count = tiles_.count();
  for (Index step = 0; step < count; ++step) {
    const Index i = step == 0 ? count - 1 : step - 1;
    accumulate(call, backward_->run_logits(call, batch, a.backward, i), state(a, 0), step == 0);
  }
}

void TiledSweep::run_gradients(const Call& call, const BatchArrays& batch, const Arrays& a,
                               bool is_whole) const {
  backward_->run(call, batch, a.backward, last_gradient_tile(), is_whole);
}

// Shapes that only tails have are measured as well.
void TiledSweep::tune(const Call& call, const BatchArrays& batch, const Arrays& a) {
  if (has_gradients()) {
    backward_->tune(call, batch, a.backward);
    return;
  }
  products_.each([&](ByLength<LogitProducts>& of_block, Index token) {
    of_block.each([&](LogitProducts& p, Index entry) { p.tune(call, a.tile, token, entry); });
  });
}

std::string TiledSweep::describe() const {
  std::string text = "tiles of " +
                     (has_gradients() ? std::string("all") : std::to_string(token_blocks_.size)) +
                     " tokens x " + std::to_string(tiles_.size) + " vocabulary entries, " +
                     std::to_string(slices()) + " slices a row\n";
  for (const ByLength<LogitProducts>& of_block : products_)
    for (const LogitProducts& p : of_block) text += p.describe();
  return backward_ ? text + backward_->describe() : text;
}

}  // namespace fljsd::cuda
