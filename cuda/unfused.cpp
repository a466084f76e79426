// SPDX-License-Identifier: Apache-2.0
// Stage `unfused`. Promise: the definition, evaluated directly from fp32 logits of all tokens; the stage that
// others are checked against.
//
//   X = student_input · student_weightᵀ, Y likewise                   2 products, fp32 out
//   token_loss, dlogits = row kernel(X, Y)                            row_kernels.cu
//   student_input_grad  = dlogits · student_weight / (n·T)            2 products, one rounding each
//   student_weight_grad = dlogitsᵀ · student_input / (n·T)
//
// T tokens, V vocab, H hidden. FLOPs 4·T·V·H forward, 4·T·V·H backward. Bytes: both weights once a pass or
// more; logits 8·T·V written, and read twice for the losses and once more for gradients, all from DRAM
// (row_kernels.cu); dlogits 2·T·V written, read twice. Memory 8·T·V, and 2·T·V for dlogits: 8.4 GB and 2.1 GB
// at 8192 x 128256; 4·T·H for the input gradient before it is rounded.
//
// Error budget. Logits: products of bf16 or fp16 are exact, sums in fp32 by the tensor cores (which
// truncate); no rounding after that. Row: row_kernels.cu. dlogits are rounded once to the inputs' format
// (2^-8 of itself at most for bf16), sums in fp32, one rounding of the result. What rounding takes from the
// largest bf16 dlogits is given back to the input gradient (rounding_residuals.h).
//
// Stage `unfused-bf16-logits` rounds the logits to bf16 on the way to memory and is the same otherwise. This
// is what PyTorch and published fused implementations do; it halves the bytes and moves every logit by up to
// 2^-8 of itself, 2 at logits near 1000. It exists to be audited.
#include <algorithm>

#include "cuda/failure.h"
#include "cuda/token_chunks.h"

namespace fljsd::cuda {
namespace {

std::unique_ptr<Stage> make(const Settings& s, fljsd_dtype logits_dtype) {
  const Index all = std::max<Index>(s.tokens, 1);
  if (s.memory_budget > 0) {
    const fljsd_pass pass = s.any_grad() ? FLJSD_FORWARD_BACKWARD : FLJSD_FORWARD;
    const Index need = TokenChunks::workspace_bytes(s, logits_dtype, pass, {all, all});
    if (need > s.memory_budget) {
      fail(FLJSD_WORKSPACE_TOO_SMALL, "memory_budget is ", s.memory_budget, " bytes, but stage ", s.stage,
           " needs ", need, "; the chunked stages need less.");
    }
  }
  return std::make_unique<TokenChunks>(s, logits_dtype, all, ChunkSizes{all, all});
}

}  // namespace

std::unique_ptr<Stage> make_unfused(const Settings& settings) {
  return make(settings, FLJSD_F32);
}

std::unique_ptr<Stage> make_unfused_bf16_logits(const Settings& settings) {
  if (settings.student.dtype != FLJSD_BF16 || settings.teacher.dtype != FLJSD_BF16) {
    fail(FLJSD_UNSUPPORTED, "Stage unfused-bf16-logits needs bf16 inputs, but student_dtype is ",
         name(settings.student.dtype), " and teacher_dtype is ", name(settings.teacher.dtype), ".");
  }
  return make(settings, FLJSD_BF16);
}

}  // namespace fljsd::cuda
