// SPDX-License-Identifier: Apache-2.0
#include "cuda/shard_sweep.h"

#include <algorithm>

#include "cuda/shard_kernels.h"

namespace fljsd::cuda {

ShardSweep::ShardSweep(const Settings& s, const OnePassWeights (&weights)[2])
    : settings_(s),
      kind_(divergence_kind(s.beta)),
      mixture_(make_mixture(s.beta, s.temperature)),
      phase_step_{weights[FLJSD_FORWARD].phase_step, weights[FLJSD_FORWARD_BACKWARD].phase_step} {
  // As chunked_vocab.cpp chooses them.
  token_blocks_ = cut(s.tokens, s.chunk_tokens > 0 ? s.chunk_tokens : 1024, s.chunk_tokens > 0 ? 1 : 128);
  const Index forward_bytes = std::max<Index>(104'000'000, s.memory_budget / 10 * 8);
  tiles_ = {s.valid_vocab,
            s.chunk_vocab > 0 ? s.chunk_vocab : whole_waves(s.device, token_blocks_.size, 8, forward_bytes)};
  const Index bytes = std::max<Index>(1'000'000'000, s.memory_budget / 10 * 9);
  gradient_tiles_ = {s.valid_vocab, s.gradient_chunk_vocab > 0 ? s.gradient_chunk_vocab
                                                               : whole_waves(s.device, s.tokens, 10, bytes)};
  for (Pieces* pieces : {&tiles_, &gradient_tiles_}) pieces->size = std::min(pieces->size, s.valid_vocab);
}

bool ShardSweep::shrink(fljsd_pass pass) {
  const bool forward = pass == FLJSD_FORWARD;
  Pieces& pieces = forward ? tiles_ : gradient_tiles_;
  const Index asked = forward ? settings_.chunk_vocab : settings_.gradient_chunk_vocab;
  if (asked > 0 || pieces.size <= 64) return false;
  pieces = cut(pieces.total, std::max<Index>(64, pieces.size / 2), 64);
  return true;
}

void ShardSweep::prepare() {
  const auto lt = std::make_shared<LtHandle>();
  for (const Index rows : {token_blocks_.size, token_blocks_.tail()}) {
    for (const Index columns : {tiles_.size, tiles_.tail()})
      products_.emplace_back(lt, settings_, rows, columns);
  }
  if (settings_.any_grad()) backward_.emplace(settings_, lt, gradient_tiles_);
}

// Enough that the rows of a tile give every multiprocessor 16 warps.
Index ShardSweep::slices(fljsd_pass pass) const {
  const Index rows = pass == FLJSD_FORWARD ? token_blocks_.size : settings_.tokens;
  const Index columns = pass == FLJSD_FORWARD ? tiles_.size : gradient_tiles_.size;
  const Index warps = Index{16} * settings_.device.multiprocessors;
  return std::clamp<Index>(warps / rows, 1, std::clamp<Index>(columns / 512, 1, 16));
}

ShardSweep::Arrays ShardSweep::lay_out(fljsd_pass pass, Workspace& workspace) const {
  Arrays a;
  a.slices = workspace.take<float>(settings_.tokens * slices(pass) * state_floats(kind_, basis_of(pass)));
  if (pass == FLJSD_FORWARD) {
    a.tile = take_tile(workspace, token_blocks_.size, tiles_.size);
  } else {
    a.backward = BackwardSweep::lay_out(settings_, gradient_tiles_, workspace);
  }
  return a;
}

const LogitProducts& ShardSweep::products_of(Index rows, Index columns) const {
  return products_[(rows == token_blocks_.size ? 0u : 2u) + (columns == tiles_.size ? 0u : 1u)];
}

void ShardSweep::run_sums(fljsd_pass pass, const Call& call, const BatchArrays& batch, const Arrays& a,
                          float* out) const {
  if (pass == FLJSD_FORWARD) {
    sweep_blocks(call, batch, a);
  } else {
    sweep_gradient_tiles(call, batch, a);
  }
  const Index floats = state_floats(kind_, basis_of(pass));
  launch_merge_records(call.stream, kind_, basis_of(pass), mixture_, phase_step_[pass],
                       {a.slices, slices(pass), slices(pass) * floats, floats}, settings_.tokens,
                       ignored_tokens(settings_, call), out);
}

void ShardSweep::sweep_blocks(const Call& call, const BatchArrays& batch, const Arrays& a) const {
  const Index record = slices(FLJSD_FORWARD) * state_floats(kind_, basis_of(FLJSD_FORWARD));
  for (Index block = 0; block < token_blocks_.count(); ++block) {
    const Index token = token_blocks_.start(block), rows = token_blocks_.length(block);
    for (Index i = 0; i < tiles_.count(); ++i) {
      const Index entry = tiles_.start(i), columns = tiles_.length(i);
      products_of(rows, columns).run(call, a.tile, token, entry);
      launch_accumulate(call.stream, kind_, basis_of(FLJSD_FORWARD), mixture_, phase_step_[FLJSD_FORWARD],
                        logit_tile(settings_, call, batch, a.tile, token, rows, entry, columns),
                        {a.slices + token * record, slices(FLJSD_FORWARD)}, i == 0);
    }
  }
}

// The second sweep begins with the tile that this one ends with, and that should be one of full size: so the
// last tile, which may be shorter, goes first.
Index ShardSweep::last_gradient_tile() const {
  const Index count = gradient_tiles_.count();
  return count == 1 ? 0 : count - 2;
}

void ShardSweep::sweep_gradient_tiles(const Call& call, const BatchArrays& batch, const Arrays& a) const {
  const Index count = gradient_tiles_.count();
  for (Index step = 0; step < count; ++step) {
    const Index i = step == 0 ? count - 1 : step - 1;
    launch_accumulate(call.stream, kind_, basis_of(FLJSD_FORWARD_BACKWARD), mixture_,
                      phase_step_[FLJSD_FORWARD_BACKWARD], backward_->run_logits(call, batch, a.backward, i),
                      {a.slices, slices(FLJSD_FORWARD_BACKWARD)}, step == 0);
  }
}

void ShardSweep::run_gradients(const Call& call, const BatchArrays& batch, const Arrays& a,
                               bool is_whole) const {
  backward_->run(call, batch, a.backward, last_gradient_tile(), is_whole);
}

void ShardSweep::tune(fljsd_pass pass, const Call& call, const BatchArrays& batch, const Arrays& a) {
  if (pass == FLJSD_FORWARD_BACKWARD) {
    backward_->tune(call, batch, a.backward);
    return;
  }
  for (std::size_t i = 0; i < products_.size(); ++i) {
    const bool last_block = i >= 2, last_tile = i % 2 == 1;
    if ((last_block && token_blocks_.tail() == token_blocks_.size) ||
        (last_tile && tiles_.tail() == tiles_.size)) {
      continue;
    }
    products_[i].tune(call, a.tile, last_block ? token_blocks_.start(token_blocks_.count() - 1) : 0,
                      last_tile ? tiles_.start(tiles_.count() - 1) : 0);
  }
}

std::string ShardSweep::describe() const {
  std::string text = "forward: tiles of " + std::to_string(token_blocks_.size) + " tokens x " +
                     std::to_string(tiles_.size) + " vocabulary entries, " +
                     std::to_string(slices(FLJSD_FORWARD)) + " slices a row\n";
  for (const LogitProducts& p : products_) text += p.describe();
  if (!backward_) return text;
  return text + "forward and backward: tiles of all tokens x " + std::to_string(gradient_tiles_.size) +
         " vocabulary entries, " + std::to_string(slices(FLJSD_FORWARD_BACKWARD)) + " slices a row\n" +
         backward_->describe();
}

}  // namespace fljsd::cuda
