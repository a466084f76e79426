// SPDX-License-Identifier: Apache-2.0
// Launches the fused sweep (sweep.cuh): both models' logits, tile by tile in registers, into records of every
// token.
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "cuda/hopper/tile_order.h"
#include "cuda/one_pass_kernels.h"

namespace fljsd::cuda {
struct RowReference;  // row_divergence.cuh
}

namespace fljsd::cuda::hopper {

// What the copy engine needs to know of the operands.
struct SweepMaps {
  CUtensorMap student_input, teacher_input, student_weight, teacher_weight;
};

struct SweepArguments {
  TileOrder order;
  int tokens = 0;
  int vocab = 0;                                   // entries that exist
  int student_k_blocks = 0, teacher_k_blocks = 0;  // hidden in blocks of 64, rounded up
  float scale = 0;       // of raw logits: log2(e)/temperature, or half of it (one pass)
  float phase_step = 0;  // of OnePassWeights, one pass
  Mixture mixture{};     // terms
  const RowReference* row_references = nullptr;  // terms: [tokens]
  const float* student_bias = nullptr;           // [vocab] or null
  const float* teacher_bias = nullptr;
  float* records = nullptr;  // [Group::records() of all groups][record_floats]
  // [groups]: 1 for a group that the fast kernel cannot do. It must be 0 before; the fast kernel writes, the
  // general one does the marked groups only, all if null.
  unsigned* marks = nullptr;
};

// What the sweep forms of a pair of logits.
enum class SweepSums {
  one_pass,     // 0 < beta < 1: moments (statistics.cuh)
  normalisers,  // 0 < beta < 1, first of two passes (exact_sums.cuh)
  terms,        // 0 < beta < 1, second of two passes
  teacher_kl,   // beta = 0 (statistics.cuh)
  student_kl,   // beta = 1
};
// Floats of a record.
constexpr int normaliser_record = 4;  // S_x, S_y, x_ref, y_ref
constexpr int terms_record = 1;       // D in bits

// Which instance of the kernel.
struct SweepKind {
  SweepSums sums = SweepSums::one_pass;
  fljsd_dtype dtype = FLJSD_BF16;  // of inputs and weights of both models: FLJSD_BF16 or FLJSD_F16
  bool biased = false;             // whether there are biases to add
  // one_pass has two kinds of sums. false: the fast ones, which take the maxima of a row's first tile for its
  // reference and mark the groups of tokens in which a later logit lies too far above it, in which logits are
  // huge, or which have no finite sums. true, and where there are biases: those that scan every tile and take
  // any logits; of the marked groups only, if there are marks.
  bool careful = false;
  bool small_share = false;  // of the mixture; terms only
};

// Clusters of either kernel, fast or general, that the device runs at a time, at least 1; 0: it cannot run
// them (not compute capability 9.0, or the library was built without sm_90a).
int most_clusters(SweepKind kind);

// most_clusters() must have been asked for this kind.
void launch_sweep(cudaStream_t stream, const SweepKind& kind, const SweepMaps& maps,
                  const SweepArguments& arguments);

}  // namespace fljsd::cuda::hopper
