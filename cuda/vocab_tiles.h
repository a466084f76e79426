// SPDX-License-Identifier: Apache-2.0
// Tiles of the vocabulary: how a range is cut, and the two products that fill a tile with fp32 logits.
#pragma once

#include <memory>
#include <string>

#include "cuda/batch.h"
#include "cuda/chernoff_kernels.h"
#include "cuda/gemm.h"

namespace fljsd::cuda {

// A range cut into equal pieces, the last of which may be shorter.
struct Pieces {
  Index total = 0;
  Index size = 1;

  Index count() const { return ceil_div(total, size); }
  Index tail() const { return total - (count() - 1) * size; }  // of the last piece
  Index start(Index i) const { return i * size; }
  Index length(Index i) const { return i + 1 == count() ? tail() : size; }
};

// About `size` each, all about equal, a multiple of `unit` unless there is only one.
Pieces cut(Index total, Index size, Index unit);

// The most columns of a tile of `rows` tokens within `bytes` whose 128 x 256 pieces, by which cuBLASLt's
// kernels proceed, fill the multiprocessors to 97 % or better; or the ones that fill them best.
Index whole_waves(const Device& device, Index rows, Index bytes_of_entry, Index bytes);

// Leading dimension of a tile: rows at multiples of 256 bytes of fp32, 128 of bf16.
inline Index tile_ld(Index columns) {
  return round_up(columns, 64);
}

// Where a tile's logits go: [rows, tile_ld(columns)] each.
struct TileBuffers {
  float* student_logits = nullptr;
  float* teacher_logits = nullptr;
  void* gemm_workspace = nullptr;
};
// Room for `rows` x `columns`, and for cuBLASLt.
TileBuffers take_tile(Workspace& workspace, Index rows, Index columns);

// The products of a tile of one size.
class LogitProducts {
 public:
  LogitProducts(const std::shared_ptr<const LtHandle>& lt, const Settings& settings, Index rows,
                Index columns);

  // Of the tile that starts at `token` and `entry`.
  void run(const Call& call, const TileBuffers& buffers, Index token, Index entry) const;
  void tune(const Call& call, const TileBuffers& buffers, Index token, Index entry);
  std::string describe() const;

 private:
  Gemm::Operands operands(const Model& model, const void* input, const void* weight, float* logits,
                          const TileBuffers& buffers, Index token, Index entry) const;
  Gemm::Operands student_operands(const Call& call, const TileBuffers& buffers, Index token,
                                  Index entry) const;
  Gemm::Operands teacher_operands(const Call& call, const TileBuffers& buffers, Index token,
                                  Index entry) const;

  Model student_model_, teacher_model_;
  Gemm student_, teacher_;
};

// What kernels are told about the tile that starts at `token` and `entry`.
LogitTile logit_tile(const Settings& settings, const Call& call, const BatchArrays& batch,
                     const TileBuffers& buffers, Index token, Index rows, Index entry, Index columns);

}  // namespace fljsd::cuda
