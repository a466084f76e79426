// SPDX-License-Identifier: Apache-2.0
// Stored logits of some tokens -> losses, and the gradient with respect to the logits if wanted.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/mixture.h"
#include "cuda/rounding_residuals.h"
#include "cuda/settings.h"

namespace fljsd::cuda {

// Which tokens do not count; labels may be null. Already offset to the first token of the chunk.
struct Ignored {
  const std::int64_t* labels = nullptr;
  Index ignore_index = 0;
};

// Raw logits of `rows` tokens: products only. Both [rows, ld] in `dtype` (fp32 or bf16), ld a multiple of 8
// and at least vocab; columns past vocab may hold anything. Biases are fp32, null for none.
struct LogitRows {
  const void* student = nullptr;
  const void* teacher = nullptr;
  fljsd_dtype dtype = FLJSD_F32;
  Index ld = 0;
  const float* student_bias = nullptr;
  const float* teacher_bias = nullptr;
  Index rows = 0;
  Index vocab = 0;
  Ignored ignored;
};

// dD/dx of each row, times `factor`, rounded once to `dtype`: [rows, ld], ld a multiple of 8; 0 for ignored
// tokens, NaN for tokens without a distribution. data == nullptr: not wanted.
struct Dlogits {
  void* data = nullptr;
  fljsd_dtype dtype = FLJSD_BF16;
  Index ld = 0;
  float factor = 1;
  ResidualLists residuals;  // filled if dtype is bf16; empty before

  Dlogits from_row(Index row) const {
    Dlogits d = *this;
    if (data != nullptr) d.data = at(data, dtype, row * ld);
    d.residuals = residuals.from_row(row);
    return d;
  }
};

// token_loss [rows]: D, 0 for ignored tokens, NaN for tokens without a distribution.
void launch_row_losses(cudaStream_t stream, Divergence kind, const Mixture& mixture, const LogitRows& logits,
                       float* token_loss, const Dlogits& dlogits);

}  // namespace fljsd::cuda
