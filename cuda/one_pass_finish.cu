// SPDX-License-Identifier: Apache-2.0
// From finished records to losses and to the row constants of the gradient.
#include "cuda/chernoff_kernels.h"
#include "cuda/device_math.cuh"
#include "cuda/launch.h"
#include "cuda/one_pass_finish.cuh"

namespace fljsd::cuda {
namespace {

constexpr int warps_per_block = 4;

__device__ __forceinline__ bool is_ignored(const Ignored& ignored, Index row) {
  return ignored.labels != nullptr && ignored.labels[row] == ignored.ignore_index;
}

__device__ void write_ignored(Index row, float* token_loss, RowConstants* constants) {
  token_loss[row] = 0;
  if (constants != nullptr) constants[row] = RowConstants{{}, 0, -1};
}
__device__ void write_without_distribution(Index row, float* token_loss, RowConstants* constants) {
  token_loss[row] = nan_value();
  if (constants != nullptr) constants[row] = RowConstants{{}, nan_value(), 0};
}

// One warp a token; lane k finishes frequency k.
template <Basis basis>
__global__ void __launch_bounds__(32 * warps_per_block)
    finish(const __grid_constant__ OnePassWeights weights, const __grid_constant__ Mixture m,
           OnePassState state, Index rows, Ignored ignored, float* token_loss, RowConstants* constants) {
  using M = Moments<basis>;
  const Index row = static_cast<Index>(blockIdx.x) * warps_per_block + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, k = min(lane, M::last);
  if (row >= rows) return;
  if (is_ignored(ignored, row)) {
    if (lane == 0) write_ignored(row, token_loss, constants);
    return;
  }
  const float* records = state.data + row * state.slices * 2 * M::stride;
  const float scale = 0.5f * m.log2_scale;
  const auto references = [&](Index slice) {
    const float* at = records + slice * 2 * M::stride + M::values;
    return RowReferences{{at[0], at[1]}, {at[2], at[3]}};
  };
  const RowReferences row_refs = row_references(state.slices, scale, references);
  FrequencySum sum{0, 0, 0, 0};
  for (Index s = 0; s < state.slices; ++s) {
    const float* record = records + s * 2 * M::stride;
    const auto value = [&](int i) { return static_cast<double>(record[i]) + record[M::stride + i]; };
    sum.add(k, row_refs, references(s), scale, weights.phase_step, value(M::values - 2), value(M::values - 1),
            value(k == 0 ? 0 : 2 * k - 1), k == 0 ? 0 : value(2 * k));
  }
  if (!sum.has_distribution()) {
    if (lane == 0) write_without_distribution(row, token_loss, constants);
    return;
  }
  sum.normalise(k, weights);
  const bool counts = lane <= M::last;
  const double d_sum = warp_sum(counts ? weights.divergence[k] * sum.re : 0.0);
  const double kappa_sum =
      warp_sum(counts ? weights.student_real[k] * sum.re - weights.student_imaginary[k] * sum.im : 0.0);
  if (lane != 0) return;
  const MixtureFinish finished = finish_mixture(d_sum, kappa_sum, weights.beta);
  token_loss[row] = static_cast<float>(finished.divergence);
  if (constants != nullptr) constants[row] = mixture_constants(finished, row_refs, sum.x, sum.y, m);
}

// One thread a token.
template <Divergence kind>
__global__ void __launch_bounds__(128)
    finish_endpoint(const __grid_constant__ Mixture m, OnePassState state, Index rows, Ignored ignored,
                    float* token_loss, RowConstants* constants) {
  const Index row = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  if (is_ignored(ignored, row)) {
    write_ignored(row, token_loss, constants);
    return;
  }
  const float* records = state.data + row * state.slices * kl_record;
  const KlRecord sum = finish_kl(state.slices, m.log2_scale, [&](Index slice) {
    const float* record = records + slice * kl_record;
    const auto value = [&](int i) { return static_cast<double>(record[i]) + record[3 + i]; };
    return KlRecord{{record[6], record[7], record[8]}, {value(0), value(1), value(2)}};
  });
  if (!sum.sums.has_distribution()) {
    write_without_distribution(row, token_loss, constants);
    return;
  }
  token_loss[row] = static_cast<float>(bit * sum.sums.divergence(sum.ref, m.log2_scale));
  if (constants != nullptr) constants[row] = kl_constants<kind>(sum, m);
}

}  // namespace

Index state_floats(Divergence kind, Basis basis) {
  if (kind != Divergence::mixture) return kl_record;
  return 2 * (basis == Basis::twelve ? Moments<Basis::twelve>::stride : Moments<Basis::twenty_two>::stride);
}

void launch_finish(cudaStream_t stream, Divergence kind, Basis basis, const Mixture& mixture,
                   const OnePassWeights& weights, const OnePassState& state, Index rows, Ignored ignored,
                   float* token_loss, RowConstants* constants) {
  const char* doing = "finishing the one-pass statistics";
  if (kind == Divergence::mixture) {
    launch(doing, basis == Basis::twelve ? finish<Basis::twelve> : finish<Basis::twenty_two>,
           grid_of(ceil_div(rows, warps_per_block)), 32 * warps_per_block, stream, weights, mixture, state,
           rows, ignored, token_loss, constants);
  } else {
    launch(doing,
           kind == Divergence::teacher_kl ? finish_endpoint<Divergence::teacher_kl>
                                          : finish_endpoint<Divergence::student_kl>,
           grid_of(ceil_div(rows, 128)), 128, stream, mixture, state, rows, ignored, token_loss, constants);
  }
}

}  // namespace fljsd::cuda
