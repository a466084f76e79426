// SPDX-License-Identifier: Apache-2.0
// Stored logits of some tokens -> losses, and the gradient with respect to the logits if wanted.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/mixture.h"
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
  float* residual = nullptr;
};

// How rows of a vocabulary are spread over blocks; made once, when a plan is.
struct RowLaunch {
  unsigned team = 1;             // blocks that share a row
  int cached = 0;                // batches of a thread that stay in shared memory
  std::size_t shared_bytes = 0;  // for them
};
RowLaunch plan_row_losses(const Device& device, Divergence kind, const Mixture& mixture, fljsd_dtype logits,
                          Index vocab);

// token_loss [rows]: D, 0 for ignored tokens, NaN for tokens without a distribution. `launch` as planned for
// these logits.
void launch_row_losses(cudaStream_t stream, const RowLaunch& launch, Divergence kind, const Mixture& mixture,
                       const LogitRows& logits, float* token_loss, const Dlogits& dlogits);

}  // namespace fljsd::cuda
