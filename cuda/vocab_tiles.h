// SPDX-License-Identifier: Apache-2.0
// How a range is cut into pieces, what is made for each of their lengths, and the two products that fill a
// tile of tokens and vocabulary entries with logits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/batch.h"
#include "cuda/one_pass_kernels.h"
#include "cuda/products.h"

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

// What is made for each length that pieces have: for full ones, and for a shorter last one.
template <class Made>
class ByLength {
 public:
  ByLength() = default;
  // make(length) -> Made
  template <class Make>
  ByLength(const Pieces& pieces, const Make& make) : pieces_(pieces) {
    made_.push_back(make(pieces.size));
    if (pieces.tail() != pieces.size) made_.push_back(make(pieces.tail()));
  }

  const Made& of(Index length) const { return made_[length == pieces_.size ? 0 : 1]; }
  // use(made, start of the first piece of its length)
  template <class Use>
  void each(const Use& use) {
    for (Made& made : made_) use(made, &made == &made_.front() ? 0 : pieces_.start(pieces_.count() - 1));
  }
  auto begin() const { return made_.begin(); }
  auto end() const { return made_.end(); }

 private:
  Pieces pieces_;
  std::vector<Made> made_;
};

// About `size` each, all about equal, a multiple of `unit` unless there is only one.
Pieces cut(Index total, Index size, Index unit);

// The most columns of a tile of `rows` tokens within `bytes` whose 128 x 256 pieces, by which cuBLASLt's
// kernels proceed, fill the multiprocessors to 97 % or better; or the ones that fill them best.
Index whole_waves(const Device& device, Index rows, Index bytes_of_entry, Index bytes);

// Where a tile's logits go: [rows, logits_ld(columns)] each.
struct TileBuffers {
  void* student_logits = nullptr;
  void* teacher_logits = nullptr;
  void* gemm_workspace = nullptr;
};
// Room for `rows` x `columns` in this format, and for cuBLASLt.
TileBuffers take_tile(Workspace& workspace, Index rows, Index columns, fljsd_dtype logits = FLJSD_F32);

// The products of a tile of one size.
class LogitProducts {
 public:
  LogitProducts(const std::shared_ptr<const LtHandle>& lt, const Settings& settings, Index rows,
                Index columns, fljsd_dtype logits = FLJSD_F32);

  // Of the tile that starts at `token` and `entry`.
  void run(const Call& call, const TileBuffers& buffers, Index token, Index entry) const;
  void tune(const Call& call, const TileBuffers& buffers, Index token, Index entry);
  std::string describe() const;

 private:
  Gemm::Operands operands(const Model& model, const void* input, const void* weight, void* logits,
                          const TileBuffers& buffers, Index token, Index entry) const;
  Gemm::Operands student_operands(const Call& call, const TileBuffers& buffers, Index token,
                                  Index entry) const;
  Gemm::Operands teacher_operands(const Call& call, const TileBuffers& buffers, Index token,
                                  Index entry) const;

  Model student_model_, teacher_model_;
  Gemm student_, teacher_;
};

// What kernels are told about the tile of fp32 logits that starts at `token` and `entry`.
LogitTile logit_tile(const Settings& settings, const Call& call, const BatchArrays& batch,
                     const TileBuffers& buffers, Index token, Index rows, Index entry, Index columns);

}  // namespace fljsd::cuda
