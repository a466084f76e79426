// SPDX-License-Identifier: Apache-2.0
// From finished records to losses and to the row constants of the gradient.
#include "cuda/device_math.cuh"
#include "cuda/ignored.cuh"
#include "cuda/launch.h"
#include "cuda/one_pass_finish.cuh"
#include "cuda/one_pass_kernels.h"
#include "cuda/one_pass_many.cuh"

namespace fljsd::cuda {
namespace {

__device__ void write_ignored(Index row, float* token_loss, RowConstants* constants) {
  token_loss[row] = 0;
  if (constants != nullptr) constants[row] = RowConstants{{}, 0, -1};
}
__device__ void write_without_distribution(Index row, float* token_loss, RowConstants* constants) {
  token_loss[row] = nan_value();
  if (constants != nullptr) constants[row] = RowConstants{{}, nan_value(), 0};
}

// From the sums of a row, frequency k in lane k of a warp.
template <class M>
__device__ void finish_sums(FrequencySum sum, int lane, const ModelReferences& refs,
                            const OnePassWeights& weights, const Mixture& m, Index row, float* token_loss,
                            RowConstants* constants) {
  const int k = min(lane, M::last);
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
  if (constants != nullptr) constants[row] = mixture_constants(finished, refs, sum.x, sum.y, m);
}

// Few slices: a warp a row.
template <Basis basis>
__global__ void __launch_bounds__(32 * merging_warps)
    finish(const __grid_constant__ OnePassWeights weights, const __grid_constant__ Mixture m,
           OnePassState state, Index rows, Ignored ignored, float* token_loss, RowConstants* constants) {
  using M = Moments<basis>;
  const Index row = static_cast<Index>(blockIdx.x) * merging_warps + static_cast<Index>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, k = min(lane, M::last);
  if (row >= rows) return;
  if (is_ignored(ignored, row)) {
    if (lane == 0) write_ignored(row, token_loss, constants);
    return;
  }
  using Record = MomentRecord<M>;
  const float* first = state.data + row * state.slices * Record::floats;
  const auto at = [&](Index s) { return first + s * Record::floats; };
  const float scale = 0.5f * m.log2_scale;
  const ModelReferences refs =
      largest_references(state.slices, scale, [&](Index s) { return Record::references(at(s)); });
  const FrequencySum sum = sum_records<M>(state.slices, at, refs, scale, weights.phase_step, k);
  finish_sums<M>(sum, lane, refs, weights, m, row, token_loss, constants);
}

// Many slices: a block a row.
template <Basis basis>
__global__ void __launch_bounds__(many_records_threads)
    finish_many(const __grid_constant__ OnePassWeights weights, const __grid_constant__ Mixture m,
                OnePassState state, Ignored ignored, float* token_loss, RowConstants* constants) {
  using M = Moments<basis>;
  const Index row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  if (is_ignored(ignored, row)) {
    if (thread == 0) write_ignored(row, token_loss, constants);
    return;
  }
  constexpr int floats = MomentRecord<M>::floats;
  const float* first = state.data + row * state.slices * floats;
  ModelReferences refs;
  const FrequencySum sum = sum_many<M>(
      state.slices, [&](Index s) { return first + s * floats; }, 0.5f * m.log2_scale, weights.phase_step,
      refs);
  if (thread < 32) finish_sums<M>(sum, thread, refs, weights, m, row, token_loss, constants);
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
  constexpr int floats = EndpointRecord::floats;
  const float* first = state.data + row * state.slices * floats;
  const KlRecord sum = finish_kl(state.slices, m.log2_scale,
                                 [&](Index s) { return EndpointRecord::load(first + s * floats); });
  if (!sum.sums.has_distribution()) {
    write_without_distribution(row, token_loss, constants);
    return;
  }
  token_loss[row] = static_cast<float>(bit * sum.sums.divergence(sum.ref, m.log2_scale));
  if (constants != nullptr) constants[row] = kl_constants<kind>(sum, m);
}

}  // namespace

Index state_floats(Divergence kind, Basis basis) {
  if (kind != Divergence::mixture) return EndpointRecord::floats;
  return basis == Basis::twelve ? MomentRecord<Moments<Basis::twelve>>::floats
                                : MomentRecord<Moments<Basis::twenty_two>>::floats;
}

void launch_finish(cudaStream_t stream, Divergence kind, Basis basis, const Mixture& mixture,
                   const OnePassWeights& weights, const OnePassState& state, Index rows, Ignored ignored,
                   float* token_loss, RowConstants* constants) {
  const char* doing = "finishing the one-pass statistics";
  if (kind == Divergence::mixture) {
    if (state.slices >= many_records) {
      launch(doing, basis == Basis::twelve ? finish_many<Basis::twelve> : finish_many<Basis::twenty_two>,
             grid_of(rows), many_records_threads, stream, weights, mixture, state, ignored, token_loss,
             constants);
    } else {
      launch(doing, basis == Basis::twelve ? finish<Basis::twelve> : finish<Basis::twenty_two>,
             grid_of(ceil_div(rows, merging_warps)), 32 * merging_warps, stream, weights, mixture, state,
             rows, ignored, token_loss, constants);
    }
  } else {
    launch(doing,
           kind == Divergence::teacher_kl ? finish_endpoint<Divergence::teacher_kl>
                                          : finish_endpoint<Divergence::student_kl>,
           grid_of(ceil_div(rows, 128)), 128, stream, mixture, state, rows, ignored, token_loss, constants);
  }
}

}  // namespace fljsd::cuda
