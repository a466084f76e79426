// SPDX-License-Identifier: Apache-2.0
// The second sweep checks the constant of the first one, and what was wrong is put right.
//
// dlogits_v = factor·(1−beta)·q_v·(c − l_v) with the constant c of the one-pass statistics (0 < beta < 1).
// For the true c they add up to 0, because c = Σ q·l; otherwise to G = factor·(1−beta)·(c − Σ q·l). So their
// sum, which costs an addition an entry, says how wrong c is, and
//
//   dlogits_v − G·q_v
//
// are the dlogits of the true constant. A token misses when |G| is more than the statistics and the sum
// itself may err by (kappa_certificate.cuh). On right statistics none does, and the three kernels leave at
// once; no host looks at the count.
//
// A token that missed: its logits are computed again, dot product by dot product, and
//   student_input_grad[t]  −= alpha·G·Σ_v q_v·weight_v      on the fp32 sum, before it is rounded
//   student_weight_grad[v] −= alpha·Σ_t G_t·q_tv·input_t    on the rounded gradient, which is rounded once
//                                                           more for each 32 tokens that missed
//   token_loss[t]           = D by its definition, from the normalisers of the statistics
// It takes milliseconds a token.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "cuda/batch_kernels.h"
#include "cuda/mixture.h"
#include "cuda/workspace.h"

namespace fljsd::cuda {

struct RowConstants;

struct Certificate {
  float* dlogit_sums = nullptr;  // [tokens]; null: not wanted
  unsigned* missed_count = nullptr;
  std::int32_t* missed = nullptr;  // [tokens]: the tokens that missed, ascending

  bool wanted() const { return dlogit_sums != nullptr; }
};
Certificate take_certificate(const Settings& settings, Workspace& workspace);

// Lists the tokens whose dlogits, times `factor`, do not add up to 0. `additions`: how many one after the
// other may have been rounded to form a sum.
void launch_certify(cudaStream_t stream, const Mixture& mixture, const Certificate& certificate,
                    const RowConstants* constants, Index tokens, float factor, Index additions);

// What a repair reads and writes. Gradients that are not wanted are null.
struct Repair {
  Certificate certificate;
  const RowConstants* constants = nullptr;
  Index tokens = 0, vocab = 0;  // the valid vocabulary
  Model student, teacher;
  fljsd_tensors tensors{};
  const float* student_bias = nullptr;  // in fp32
  const float* teacher_bias = nullptr;
  Factor alpha;  // of the gradient products
  float* token_loss = nullptr;
  float* input_grad = nullptr;  // fp32
  Index input_grad_ld = 0;
  void* weight_grad = nullptr;
  fljsd_dtype weight_grad_dtype = FLJSD_BF16;
  Index weight_grad_ld = 0;
  float* column_sum = nullptr;  // of the dlogits
};
void launch_repair(cudaStream_t stream, const Device& device, const Mixture& mixture, const Repair& repair);

}  // namespace fljsd::cuda
