// SPDX-License-Identifier: Apache-2.0
// From finished records to losses and to the row constants of the gradient.
#include "cuda/chernoff_kernels.h"
#include "cuda/device_math.cuh"
#include "cuda/ignored.cuh"
#include "cuda/launch.h"
#include "cuda/one_pass_finish.cuh"

namespace fljsd::cuda {
namespace {

constexpr int warps_per_block = 8;

__device__ void write_ignored(Index row, float* token_loss, RowConstants* constants) {
  token_loss[row] = 0;
  if (constants != nullptr) constants[row] = RowConstants{{}, 0, -1};
}
__device__ void write_without_distribution(Index row, float* token_loss, RowConstants* constants) {
  token_loss[row] = nan_value();
  if (constants != nullptr) constants[row] = RowConstants{{}, nan_value(), 0};
}

// A row's records.
template <class M>
struct Records {
  const float* first;

  __device__ RowReferences references(Index slice) const {
    const float* at = first + slice * 2 * M::stride + M::values;
    return {{at[0], at[1]}, {at[2], at[3]}};
  }
  __device__ double value(Index slice, int i) const {
    const float* record = first + slice * 2 * M::stride;
    return static_cast<double>(record[i]) + record[M::stride + i];
  }
  __device__ double sum_x(Index slice) const { return value(slice, M::values - 2); }
  __device__ double sum_y(Index slice) const { return value(slice, M::values - 1); }
  __device__ double re(Index slice, int k) const { return value(slice, k == 0 ? 0 : 2 * k - 1); }
  __device__ double im(Index slice, int k) const { return k == 0 ? 0 : value(slice, 2 * k); }
};

// From the sums of a row, frequency k in lane k of a warp.
template <class M>
__device__ void finish_sums(FrequencySum sum, int lane, const RowReferences& refs,
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
__global__ void __launch_bounds__(32 * warps_per_block)
    finish(const __grid_constant__ OnePassWeights weights, const __grid_constant__ Mixture m,
           OnePassState state, Index rows, Ignored ignored, float* token_loss, RowConstants* constants) {
  using M = Moments<basis>;
  const Index row = static_cast<Index>(blockIdx.x) * warps_per_block + static_cast<Index>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, k = min(lane, M::last);
  if (row >= rows) return;
  if (is_ignored(ignored, row)) {
    if (lane == 0) write_ignored(row, token_loss, constants);
    return;
  }
  const Records<M> records{state.data + row * state.slices * 2 * M::stride};
  const float scale = 0.5f * m.log2_scale;
  const RowReferences refs =
      row_references(state.slices, scale, [&](Index s) { return records.references(s); });
  FrequencySum sum{0, 0, 0, 0};
  for (Index s = 0; s < state.slices; ++s) {
    sum.add(k, refs, records.references(s), scale, weights.phase_step, records.sum_x(s), records.sum_y(s),
            records.re(s, k), records.im(s, k));
  }
  finish_sums<M>(sum, lane, refs, weights, m, row, token_loss, constants);
}

// Many slices: a block a row. Turning one frequency of one slice takes a few hundred instructions in double,
// so threads share those, a batch of slices at a time; one warp adds them up in order.
template <Basis basis>
__global__ void __launch_bounds__(32 * warps_per_block)
    finish_many(const __grid_constant__ OnePassWeights weights, const __grid_constant__ Mixture m,
                OnePassState state, Ignored ignored, float* token_loss, RowConstants* constants) {
  using M = Moments<basis>;
  constexpr int batch = 48, frequencies = M::last + 1;
  struct Complex {
    double re, im;
  };
  __shared__ RowReferences row_refs;
  __shared__ Shrink shrink[batch];
  __shared__ Complex turned[batch][frequencies];
  const Index row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x), k = min(thread % 32, M::last);
  const bool adds = thread < 32;
  if (is_ignored(ignored, row)) {
    if (thread == 0) write_ignored(row, token_loss, constants);
    return;
  }
  const Records<M> records{state.data + row * state.slices * 2 * M::stride};
  const float scale = 0.5f * m.log2_scale;
  if (adds) {
    const RowReferences refs =
        row_references(state.slices, scale, [&](Index s) { return records.references(s); });
    if (thread == 0) row_refs = refs;
  }
  __syncthreads();
  FrequencySum sum{0, 0, 0, 0};
  for (Index first = 0; first < state.slices; first += batch) {
    const int count = static_cast<int>(min(Index{batch}, state.slices - first));
    for (int i = thread; i < count * frequencies; i += 32 * warps_per_block) {
      const int s = i / frequencies, frequency = i % frequencies;
      const Turn turn(records.references(first + s), row_refs, scale, weights.phase_step);
      Complex phi{records.re(first + s, frequency), records.im(first + s, frequency)};
      turn.turn(frequency, phi.re, phi.im);
      turned[s][frequency] = phi;
    }
    for (int s = thread; s < count; s += 32 * warps_per_block) {
      const Turn turn(records.references(first + s), row_refs, scale, weights.phase_step);
      shrink[s] = Shrink(turn);
    }
    __syncthreads();
    if (adds) {
      for (int s = 0; s < count; ++s) {
        sum.add(shrink[s], records.sum_x(first + s), records.sum_y(first + s), turned[s][k].re,
                turned[s][k].im);
      }
    }
    __syncthreads();
  }
  if (adds) finish_sums<M>(sum, thread, row_refs, weights, m, row, token_loss, constants);
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
    if (state.slices >= warps_per_block) {
      launch(doing, basis == Basis::twelve ? finish_many<Basis::twelve> : finish_many<Basis::twenty_two>,
             grid_of(rows), 32 * warps_per_block, stream, weights, mixture, state, ignored, token_loss,
             constants);
    } else {
      launch(doing, basis == Basis::twelve ? finish<Basis::twelve> : finish<Basis::twenty_two>,
             grid_of(ceil_div(rows, warps_per_block)), 32 * warps_per_block, stream, weights, mixture, state,
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
