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

// The sum of the slices first, first + step, ... of a row by one warp, lane k for frequency k.
template <class M>
__device__ FrequencySum add_slices(const float* records, Index first, Index step, Index slices, float scale,
                                   float phase_step, int k, RowReferences& refs) {
  const auto references = [&](Index slice) {
    const float* at = records + (first + slice * step) * 2 * M::stride + M::values;
    return RowReferences{{at[0], at[1]}, {at[2], at[3]}};
  };
  const Index count = ceil_div(slices - first, step);
  refs = row_references(count, scale, references);
  FrequencySum sum{0, 0, 0, 0};
  for (Index s = 0; s < count; ++s) {
    const float* record = records + (first + s * step) * 2 * M::stride;
    const auto value = [&](int i) { return static_cast<double>(record[i]) + record[M::stride + i]; };
    sum.add(k, refs, references(s), scale, phase_step, value(M::values - 2), value(M::values - 1),
            value(k == 0 ? 0 : 2 * k - 1), k == 0 ? 0 : value(2 * k));
  }
  return sum;
}

// Lane k finishes frequency k. Turning a slice takes about a microsecond, so where a row has many slices
// `warps` warps share them; a block has warps_per_block / warps rows.
template <Basis basis, int warps>
__global__ void __launch_bounds__(32 * warps_per_block)
    finish(const __grid_constant__ OnePassWeights weights, const __grid_constant__ Mixture m,
           OnePassState state, Index rows, Ignored ignored, float* token_loss, RowConstants* constants) {
  using M = Moments<basis>;
  constexpr int rows_per_block = warps_per_block / warps;
  const int warp = static_cast<int>(threadIdx.x) / 32, part = warp % warps;
  const Index row = static_cast<Index>(blockIdx.x) * rows_per_block + warp / warps;
  const int lane = static_cast<int>(threadIdx.x) % 32, k = min(lane, M::last);
  if (row >= rows) return;  // with several warps a row: the whole block
  if (is_ignored(ignored, row)) {
    if (lane == 0 && part == 0) write_ignored(row, token_loss, constants);
    return;
  }
  const float* records = state.data + row * state.slices * 2 * M::stride;
  const float scale = 0.5f * m.log2_scale;
  RowReferences row_refs;
  FrequencySum sum =
      add_slices<M>(records, part, warps, state.slices, scale, weights.phase_step, k, row_refs);
  if constexpr (warps > 1) {
    static_assert(rows_per_block == 1);
    __shared__ FrequencySum part_sums[warps][32];
    __shared__ RowReferences part_refs[warps];
    part_sums[part][lane] = sum;
    if (lane == 0) part_refs[part] = row_refs;
    __syncthreads();
    if (part != 0) return;
    row_refs = row_references(warps, scale, [&](Index p) { return part_refs[p]; });
    sum = {0, 0, 0, 0};
    for (int p = 0; p < warps; ++p) {
      const FrequencySum& other = part_sums[p][lane];
      sum.add(k, row_refs, part_refs[p], scale, weights.phase_step, other.x, other.y, other.re, other.im);
    }
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
    const bool many = state.slices >= warps_per_block;
    const auto kernel =
        basis == Basis::twelve
            ? (many ? finish<Basis::twelve, warps_per_block> : finish<Basis::twelve, 1>)
            : (many ? finish<Basis::twenty_two, warps_per_block> : finish<Basis::twenty_two, 1>);
    launch(doing, kernel, grid_of(many ? rows : ceil_div(rows, warps_per_block)), 32 * warps_per_block,
           stream, weights, mixture, state, rows, ignored, token_loss, constants);
  } else {
    launch(doing,
           kind == Divergence::teacher_kl ? finish_endpoint<Divergence::teacher_kl>
                                          : finish_endpoint<Divergence::student_kl>,
           grid_of(ceil_div(rows, 128)), 128, stream, mixture, state, rows, ignored, token_loss, constants);
  }
}

}  // namespace fljsd::cuda
