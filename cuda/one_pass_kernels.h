// SPDX-License-Identifier: Apache-2.0
// One-pass statistics of tiles of logits, and the second sweep that turns row constants into dlogits.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/mixture.h"
#include "cuda/one_pass_basis.h"
#include "cuda/row_kernels.h"
#include "cuda/settings.h"

namespace fljsd::cuda {

struct RowConstants;  // row_divergence.cuh, 32 bytes a token
constexpr Index row_constants_bytes = 32;

// A tile of raw fp32 logits [rows, ld], ld a multiple of 4, of which `columns` exist. Biases start at the
// tile's first column.
struct LogitTile {
  const float* student = nullptr;
  const float* teacher = nullptr;
  Index ld = 0;
  Index rows = 0;
  Index columns = 0;
  const float* student_bias = nullptr;
  const float* teacher_bias = nullptr;
  Ignored ignored;
};

// State of one token: `slices` records, each the sums of one slice of every tile. Starts at the tile's first
// token.
struct OnePassState {
  float* data = nullptr;
  Index slices = 1;
};
Index state_floats(Divergence kind, Basis basis);  // of one record (one_pass_record.cuh)

// Adds a tile to the states of its tokens; `first`: they hold nothing yet.
void launch_accumulate(cudaStream_t stream, Divergence kind, Basis basis, const Mixture& mixture,
                       float phase_step, const LogitTile& tile, const OnePassState& state, bool first);

// The same for beta = 0 and 1; launch_accumulate() calls it.
void launch_accumulate_kl(cudaStream_t stream, Divergence kind, const Mixture& mixture, const LogitTile& tile,
                          const OnePassState& state, bool first);

// token_loss [rows] from finished states, and row constants for launch_tile_dlogits unless null.
void launch_finish(cudaStream_t stream, Divergence kind, Basis basis, const Mixture& mixture,
                   const OnePassWeights& weights, const OnePassState& state, Index rows, Ignored ignored,
                   float* token_loss, RowConstants* constants);

// Where the dlogits of each token are added up over its tiles, before they are rounded; in a fixed order.
struct DlogitSums {
  float* data = nullptr;  // [tokens]; null: not wanted
  bool first = true;      // tile: nothing was added yet
};
// Roundings one after the other in a sum over `tiles` tiles of `columns` entries.
Index dlogit_sum_additions(Index columns, Index tiles);

// dlogits of a tile. Columns from tile.columns to the next multiple of 4 are written too. `sums`: for 0 <
// beta < 1 only.
void launch_tile_dlogits(cudaStream_t stream, Divergence kind, const Mixture& mixture, const LogitTile& tile,
                         const RowConstants* constants, const Dlogits& dlogits, const DlogitSums& sums = {});

}  // namespace fljsd::cuda
