// SPDX-License-Identifier: Apache-2.0
// The engine of the stages that store logits: some tokens at a time, logits by cuBLASLt, the row kernel, and
// gradients by cuBLASLt through dlogits. The unfused stages are the case of one chunk.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cuda/batch.h"
#include "cuda/gemm.h"
#include "cuda/stage.h"

namespace fljsd::cuda {

class TokenChunks final : public Stage {
 public:
  // chunk[pass]: tokens of a chunk.
  TokenChunks(const Settings& settings, fljsd_dtype logits_dtype, Index forward_chunk, Index backward_chunk);

  Index workspace_bytes(fljsd_pass pass) const override;
  void run(fljsd_pass pass, const Call& call) const override;
  void tune(fljsd_pass pass, const Call& call) override;
  std::string describe() const override;

  // Bytes that a pass needs with chunks of this size.
  static Index workspace_bytes(const Settings& settings, fljsd_dtype logits_dtype, fljsd_pass pass,
                               Index chunk);

 private:
  // The products of one chunk length.
  struct Products {
    Gemm student_logits, teacher_logits;
    std::optional<Gemm> input_grad;
    std::optional<Gemm> weight_grad;
  };
  struct Arrays;

  static Arrays lay_out(const Settings& s, fljsd_dtype logits_dtype, fljsd_pass pass, Index chunk,
                        Workspace& workspace, const Call* call);
  Products make_products(fljsd_pass pass, Index rows) const;
  Products& products(fljsd_pass pass, Index rows) const;
  void run_logits(const Products& products, const Call& call, const Arrays& arrays, Index first) const;

  Settings settings_;
  fljsd_dtype logits_dtype_;
  Divergence kind_;
  Mixture mixture_;
  std::shared_ptr<const LtHandle> lt_;
  Index chunk_[2];                               // by pass
  std::unique_ptr<Products> full_[2], tail_[2];  // tail: the last chunk, when it is shorter
  float alpha_, zero_ = 0, one_ = 1;
};

}  // namespace fljsd::cuda
