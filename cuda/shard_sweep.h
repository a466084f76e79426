// SPDX-License-Identifier: Apache-2.0
// One rank's share of the work, without its peers: sums over the entries of its shard of the vocabulary, tile
// by tile as stage chunked-vocab takes them, and the gradients that the shard's dlogits lead to once the row
// constants of the whole vocabulary are known.
//
// Sums: FLOPs 4·T·S·H for T tokens, S entries of the shard and H hidden; with gradients 12·T·S·H − 4·T·C·H,
// C columns of the tile whose logits the second sweep finds in place.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/backward_sweep.h"
#include "cuda/one_pass_weights.h"

namespace fljsd::cuda {

// Frequencies that a pass needs.
constexpr Basis basis_of(fljsd_pass pass) {
  return pass == FLJSD_FORWARD ? Basis::twelve : Basis::twenty_two;
}

class ShardSweep {
 public:
  // settings: valid_vocab > 0 entries of the shard, tokens > 0. `weights`: by pass; used for their phase
  // step.
  ShardSweep(const Settings& settings, const OnePassWeights (&weights)[2]);

  struct Arrays {
    float* slices = nullptr;         // [tokens, slices, state_floats]
    TileBuffers tile;                // forward only
    BackwardSweep::Arrays backward;  // with gradients; its constants are to be filled in between
  };
  Arrays lay_out(fljsd_pass pass, Workspace& workspace) const;
  // Halves the tile of a pass; false if it was asked for or is small already.
  bool shrink(fljsd_pass pass);

  // Makes the products, when tiles are final.
  void prepare();

  // The sums of every token over the shard, one record each, into `out` [tokens, state_floats].
  void run_sums(fljsd_pass pass, const Call& call, const BatchArrays& batch, const Arrays& arrays,
                float* out) const;
  // After run_sums() of the backward pass, with arrays.backward.constants filled in: the gradients, those of
  // the input over this shard only. `is_whole`: the shard is the whole vocabulary, so the sums of its dlogits
  // can certify the constants.
  void run_gradients(const Call& call, const BatchArrays& batch, const Arrays& arrays, bool is_whole) const;
  // After a complete run of the pass; synchronises.
  void tune(fljsd_pass pass, const Call& call, const BatchArrays& batch, const Arrays& arrays);
  std::string describe() const;

 private:
  Index slices(fljsd_pass pass) const;
  const LogitProducts& products_of(Index rows, Index columns) const;
  void sweep_blocks(const Call& call, const BatchArrays& batch, const Arrays& arrays) const;
  void sweep_gradient_tiles(const Call& call, const BatchArrays& batch, const Arrays& arrays) const;
  // The tile that sweep_gradient_tiles() ends with.
  Index last_gradient_tile() const;

  Settings settings_;
  Divergence kind_;
  Mixture mixture_;
  float phase_step_[2];  // by pass
  Pieces token_blocks_, tiles_, gradient_tiles_;
  std::vector<LogitProducts> products_;    // [rows: size, tail][columns: size, tail], forward only
  std::optional<BackwardSweep> backward_;  // with gradients
};

}  // namespace fljsd::cuda
