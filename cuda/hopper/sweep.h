// SPDX-License-Identifier: Apache-2.0
// Launches the fused sweep (sweep.cuh): both models' logits, tile by tile in registers, into one-pass
// records.
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "cuda/chernoff_kernels.h"
#include "cuda/hopper/tile_order.h"

namespace fljsd::cuda::hopper {

// What the copy engine needs to know of the operands.
struct SweepMaps {
  CUtensorMap student_input, teacher_input, student_weight, teacher_weight;
};

constexpr int lockstep_blocks = 8;  // k blocks of a step of the lockstep

struct SweepArguments {
  TileOrder order;
  int tokens = 0;
  int vocab = 0;                                   // entries that exist
  int student_k_blocks = 0, teacher_k_blocks = 0;  // hidden in blocks of 64, rounded up
  float scale = 0;                      // of raw logits: log2(e)/temperature, or half of it (half_units)
  float phase_step = 0;                 // of OnePassWeights
  const float* student_bias = nullptr;  // [vocab] or null
  const float* teacher_bias = nullptr;
  float* records = nullptr;      // [Group::records() of all groups][record_floats]
  unsigned* progress = nullptr;  // one zero
  unsigned most_steps = 0;       // of the lockstep, of the cluster with the longest way
};

// Which instance of the kernel.
struct SweepKind {
  Divergence divergence = Divergence::mixture;
  Basis basis = Basis::twelve;     // of a mixture
  fljsd_dtype dtype = FLJSD_BF16;  // of inputs and weights of both models: FLJSD_BF16 or FLJSD_F16
  // Biases may be given, and logits may be -inf or so low that scaling them overflows: three instructions a
  // pair more.
  bool general = false;
};

// Clusters that the device runs at a time, at least 1; 0: it cannot run the kernel (not compute
// capability 9.0, or the library was built without sm_90a).
int most_clusters(const SweepKind& kind);

// Vocabulary entries of a tile. With 47 sums a pair the registers hold fewer accumulators.
constexpr int tile_columns(Divergence divergence, Basis basis) {
  return divergence == Divergence::mixture && basis == Basis::twenty_two ? 128 : 160;
}

// Whether logits are taken in half log2 units (otherwise in log2 units).
constexpr bool half_units(Divergence divergence) {
  return divergence == Divergence::mixture;
}

// Steps of the lockstep (sweep.cuh) that the cluster with the longest way takes.
unsigned lockstep_steps(const TileOrder& order, int student_k_blocks, int teacher_k_blocks);

// Clears the counter and launches the kernel; most_clusters() must have been asked for this kind.
void launch_sweep(cudaStream_t stream, const SweepKind& kind, const SweepMaps& maps,
                  const SweepArguments& arguments);

}  // namespace fljsd::cuda::hopper
