// SPDX-License-Identifier: Apache-2.0
// One pass over a range of the vocabulary whose logits exist a tile at a time: X, Y tiles by cuBLASLt, folded
// into the one-pass statistics of their tokens. The sweep of stage chunked-vocab, whose range is the whole
// vocabulary, and of a rank, whose range is its shard.
//
//   forward:  for each block of tokens, for each tile of the range
//   backward: the same with all tokens in a tile; then, when row constants are known, a second sweep over the
//             tiles (backward_sweep.h). It begins with the tile that the first one ended with, whose logits
//             are still there
//
// T tokens, S entries of the range, H hidden, tiles of C entries. FLOPs 4·T·S·H forward, 12·T·S·H − 4·T·C·H
// with gradients. A tile of a product starts and ends with most multiprocessors idle, so tiles are as large
// as their memory allows (104 MB forward, 1 GB with gradients, or what a larger budget allows), and of as
// many whole waves of 128 x 256 pieces as fit.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cuda/backward_sweep.h"
#include "cuda/one_pass_statistics.h"

namespace fljsd::cuda {

class TiledSweep {
 public:
  // settings: tokens > 0; valid_vocab > 0, the entries of the range; any_grad() if the pass has gradients.
  TiledSweep(const Settings& settings, const OnePassStatistics& statistics, fljsd_pass pass);

  struct Arrays {
    float* records = nullptr;        // [tokens, slices, record_floats]
    TileBuffers tile;                // forward only
    BackwardSweep::Arrays backward;  // with gradients; its constants are to be filled in between
  };
  Arrays lay_out(Workspace& workspace) const;

  // Halves tiles that nobody asked for until workspace_bytes(), of which they are a part, is at most `budget`
  // bytes (0: any). Throws Failure(FLJSD_WORKSPACE_TOO_SMALL).
  void fit(Index budget, const std::function<Index()>& workspace_bytes);
  // Makes the products, when tiles are final.
  void prepare(const std::shared_ptr<const LtHandle>& lt);

  // The sums of every token over the range, a few records each.
  OnePassState run_sums(const Call& call, const BatchArrays& batch, const Arrays& arrays) const;
  // After run_sums(), with arrays.backward.constants filled in: the gradients, those of the input over this
  // range only. `is_whole`: the range is the whole vocabulary, so the sums of its dlogits can certify the
  // constants.
  void run_gradients(const Call& call, const BatchArrays& batch, const Arrays& arrays, bool is_whole) const;
  // After a complete run of the pass, with real data in every operand, on which the speed of a product
  // depends; synchronises.
  void tune(const Call& call, const BatchArrays& batch, const Arrays& arrays);
  // Begins after "forward: " and the like.
  std::string describe() const;

 private:
  bool has_gradients() const { return pass_ == FLJSD_FORWARD_BACKWARD; }
  Index asked_columns() const;
  Index slices() const;
  OnePassState state(const Arrays& arrays, Index token) const;
  void accumulate(const Call& call, const LogitTile& tile, const OnePassState& state, bool first) const;
  void sweep_blocks(const Call& call, const BatchArrays& batch, const Arrays& arrays) const;
  void sweep_gradient_tiles(const Call& call, const BatchArrays& batch, const Arrays& arrays) const;
  Index last_gradient_tile() const;

  Settings settings_;
  OnePassStatistics statistics_;
  fljsd_pass pass_;
  Pieces token_blocks_, tiles_;
  ByLength<ByLength<LogitProducts>> products_;  // of blocks of tokens, of tiles; forward only
  std::optional<BackwardSweep> backward_;       // with gradients
};

}  // namespace fljsd::cuda
