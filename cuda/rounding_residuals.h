// SPDX-License-Identifier: Apache-2.0
// What rounding takes from a token's largest dlogits, given back to its input gradient.
//
// bf16 dlogits are off by up to 2^-8 of themselves, and where the rows of the weight share a large mean those
// errors add up along it. As a rule a few entries have most of a row's dlogits, and most of its error. So
// entries with |dD/dx_v| >= S/16, S a bound of Σ_v |dD/dx_v| (gradient_norm.cuh),
// leave their residual in a list: at most 16 of them. Then
//
//   student_input_grad[t] += Σ_listed residual_v · weight_v,      in the order of v, in fp32
//
// is what the product would have given for dlogits with unrounded large entries. What stays is at most
// 2^-8·sqrt(Σ_small g²) <= 2^-8·sqrt(S/16·Σ_small |g|) <= 2^-8·S/4 in the 2-norm. Bytes: 2·hidden for a
// listed entry. fp16 dlogits err by an eighth of that, and are left alone; so is beta = 1, where no S is
// known.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "cuda/settings.h"
#include "cuda/workspace.h"

namespace fljsd::cuda {

struct Residual {
  std::int32_t entry;  // of the vocabulary
  float value;         // dlogit less what is stored of it
};

// Lists of the rows from some token on. A row whose count exceeds `most` (its row constants are wrong by more
// than a percent) has none.
struct ResidualLists {
  static constexpr unsigned most = 16;

  Residual* data = nullptr;    // [rows, most], in any order
  unsigned* counts = nullptr;  // [rows]; null: not wanted
  Index first_entry = 0;       // of the vocabulary: where the dlogits' first column is

  ResidualLists from_row(Index row) const {
    return counts == nullptr ? *this : ResidualLists{data + row * most, counts + row, first_entry};
  }
};

// Whether these settings want lists: a gradient of the input through bf16 dlogits, beta < 1.
bool wants_residuals(const Settings& settings);
// Room for `rows` lists, if they are wanted.
ResidualLists take_residuals(const Settings& settings, Workspace& workspace, Index rows);
// Empties the lists.
void clear_residuals(cudaStream_t stream, const ResidualLists& lists, Index rows);

struct Factor;  // batch_kernels.h

// out [rows, columns] += factor · Σ residual · weight row; `weight` is bf16.
struct ResidualProduct {
  Index rows = 0, columns = 0;
  const void* weight = nullptr;
  Index weight_ld = 0;
  float* out = nullptr;
  Index out_ld = 0;
};
void launch_residual_product(cudaStream_t stream, const ResidualLists& lists, const ResidualProduct& product,
                             const Factor& factor);

}  // namespace fljsd::cuda
