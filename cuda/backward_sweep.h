// SPDX-License-Identifier: Apache-2.0
// Gradients from row constants, a tile of the vocabulary at a time, for any stage that knows the constants:
//
//   X, Y tile by cuBLASLt; dlogits of the tile (tile_dlogits.cu)
//   student_input_grad += dlogits · weight tile                        (fp32, rounded once at the end)
//                       + what rounding took from large dlogits        (rounding_residuals.h)
//   student_weight_grad tile = dlogitsᵀ · student_input / (n·T)        (complete: rounded once)
//
// A token whose dlogits do not add up to 0 had a wrong constant, and is repaired (kappa_certificate.h).
//
// T tokens, V vocab, H hidden, tiles of C entries. FLOPs 8·T·V·H, less 4·T·C·H when the logits of the first
// tile are still there. Memory: 8 + size of an input element, bytes per token and tile column; 4·T·H for the
// sum of the input gradient unless that is fp32 itself.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cuda/kappa_certificate.h"
#include "cuda/vocab_tiles.h"

namespace fljsd::cuda {

class BackwardSweep {
 public:
  // settings.any_grad() holds; tokens > 0. `tiles`: of the valid vocabulary.
  BackwardSweep(const Settings& settings, const std::shared_ptr<const LtHandle>& lt, const Pieces& tiles);

  // The sweep's share of a workspace.
  struct Arrays {
    TileBuffers tile;                   // all tokens
    RowConstants* constants = nullptr;  // [tokens]: what the sweep starts from (launch_finish writes them)
    Dlogits dlogits;                    // [tokens, tile]
    float* input_grad_sum = nullptr;    // [tokens, hidden], unless the result is fp32
    float* column_sum = nullptr;        // [valid_vocab]
    float* column_sum_partial = nullptr;
    Certificate certificate;
  };
  static Arrays lay_out(const Settings& settings, const Pieces& tiles, Workspace& workspace);

  // Fills arrays.tile with the logits of tile i, and says what they are: for a first sweep over the same
  // tiles.
  LogitTile run_logits(const Call& call, const BatchArrays& batch, const Arrays& arrays, Index i) const;
  // All gradients that the settings want; also repairs the loss of a token whose constants were wrong. The
  // tiles are the whole vocabulary of the constants, or `certifies` is false and nothing is repaired.
  // `ready`: the tile whose logits arrays.tile holds already. Tiles are taken from `ready` (otherwise the
  // last one) downwards, and round.
  void run(const Call& call, const BatchArrays& batch, const Arrays& arrays,
           std::optional<Index> ready = std::nullopt, bool certifies = false) const;
  // Measures the products of both tile sizes, after a run().
  void tune(const Call& call, const BatchArrays& batch, const Arrays& arrays);
  std::string describe() const;

 private:
  struct Products {
    LogitProducts logits;
    std::optional<Gemm> input_grad, weight_grad;
  };

  Products make_products(const std::shared_ptr<const LtHandle>& lt, Index columns) const;
  Gemm::Operands input_grad_operands(const Call& call, const BatchArrays& batch, const Arrays& arrays,
                                     Index entry, bool adds) const;
  Gemm::Operands weight_grad_operands(const Call& call, const BatchArrays& batch, const Arrays& arrays,
                                      Index entry) const;
  // Checks the sums of the dlogits, and repairs what they say was wrong.
  void certify(const Call& call, const BatchArrays& batch, const Arrays& arrays) const;
  void finish(const Call& call, const BatchArrays& batch, const Arrays& arrays) const;

  Settings settings_;
  Divergence kind_;
  Mixture mixture_;
  Pieces tiles_;
  ByLength<Products> products_;  // of tiles
};

}  // namespace fljsd::cuda
