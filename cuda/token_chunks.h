// SPDX-License-Identifier: Apache-2.0
// The engine of the stages that store logits: a chunk of tokens at a time, logits by cuBLASLt and the row
// kernel; after each group of chunks, gradients by cuBLASLt through the group's dlogits. The unfused stages
// are the case of one chunk.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cuda/stage.h"
#include "cuda/vocab_tiles.h"

namespace fljsd::cuda {

// Tokens whose logits, and tokens whose dlogits are kept at a time; group is a multiple of chunk, or all.
struct ChunkSizes {
  Index chunk = 1;
  Index group = 1;
};

class TokenChunks final : public Stage {
 public:
  TokenChunks(const Settings& settings, fljsd_dtype logits_dtype, Index forward_chunk,
              const ChunkSizes& backward);

  Index workspace_bytes(fljsd_pass pass) const override;
  void run(fljsd_pass pass, const Call& call) const override;
  void tune(fljsd_pass pass, const Call& call) override;
  std::string describe() const override;

  // Bytes that a pass needs with chunks of this size.
  static Index workspace_bytes(const Settings& settings, fljsd_dtype logits_dtype, fljsd_pass pass,
                               const ChunkSizes& sizes);

 private:
  // Of one length of a group.
  struct GradientProducts {
    std::optional<Gemm> input_grad;
    std::optional<Gemm> weight_grad;
  };
  struct Arrays;

  static Arrays lay_out(const Settings& s, fljsd_dtype logits_dtype, fljsd_pass pass, const ChunkSizes& sizes,
                        Workspace& workspace, const Call* call);
  GradientProducts make_gradients(Index rows) const;
  Gemm::Operands input_grad_operands(const Call& call, const Arrays& arrays, Index first) const;
  // `adds`: to what earlier groups left.
  Gemm::Operands weight_grad_operands(const Call& call, const Arrays& arrays, Index first, bool adds) const;
  // Gradients of the group of tokens [first, first + rows), whose dlogits are there.
  void run_gradients(const Call& call, const Arrays& arrays, Index first, Index rows) const;

  Settings settings_;
  fljsd_dtype logits_dtype_;
  Divergence kind_;
  Mixture mixture_;
  std::shared_ptr<const LtHandle> lt_;
  ChunkSizes sizes_[2];                   // by pass
  ByLength<LogitProducts> logits_[2];     // of chunks, by pass
  ByLength<GradientProducts> gradients_;  // of groups
};

}  // namespace fljsd::cuda
