// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/two_pass_finish.h"

#include "cuda/device_math.cuh"
#include "cuda/hopper/sweep.h"
#include "cuda/ignored.cuh"
#include "cuda/launch.h"
#include "cuda/row_constants.cuh"

namespace fljsd::cuda::hopper {
namespace {

static_assert(sizeof(RowReference) == row_reference_bytes);
constexpr int threads = 128;

// The sum of one model's records, relative to the largest of their references.
struct Normaliser {
  float reference;
  double sum;
};
__device__ Normaliser normaliser(const float* records, Index slots, int model, double log2_scale) {
  float largest = -largest_float;
  for (Index i = 0; i < slots; ++i) largest = fmaxf(largest, records[i * normaliser_record + 2 + model]);
  double sum = 0;
  for (Index i = 0; i < slots; ++i) {
    const float* record = records + i * normaliser_record;
    const double below = static_cast<double>(record[2 + model]) - static_cast<double>(largest);
    sum += static_cast<double>(record[model]) * exp2(below * log2_scale);
  }
  return {largest, sum};
}

__global__ void __launch_bounds__(threads)
    row_references(const __grid_constant__ Mixture m, const float* records, Index slots, Index rows,
                   RowReference* references) {
  const Index row = static_cast<Index>(blockIdx.x) * threads + threadIdx.x;
  if (row >= rows) return;
  const float* mine = records + row * slots * normaliser_record;
  const Normaliser x = normaliser(mine, slots, 0, static_cast<double>(m.log2_scale));
  const Normaliser y = normaliser(mine, slots, 1, static_cast<double>(m.log2_scale));
  const double log2_x = log2(x.sum), log2_y = log2(y.sum);
  RowReference reference = row_constants(x.reference, y.reference, log2_x, log2_y, 0, false, m).ref;
  const auto is_distribution = [](double sum) { return sum > 0 && sum < static_cast<double>(infinity()); };
  if (!is_distribution(x.sum) || !is_distribution(y.sum)) reference.log2_sum_x = nanf("");
  references[row] = reference;
}

__global__ void __launch_bounds__(threads)
    exact_losses(const float* records, Index slots, Index rows, const RowReference* references,
                 Ignored ignored, float* token_loss) {
  const Index row = static_cast<Index>(blockIdx.x) * threads + threadIdx.x;
  if (row >= rows) return;
  if (is_ignored(ignored, row)) {
    token_loss[row] = 0;
    return;
  }
  double sum = 0;
  for (Index i = 0; i < slots; ++i) sum += static_cast<double>(records[row * slots + i]);
  const float log2_sum = references[row].log2_sum_x;
  token_loss[row] = isnan(log2_sum) ? log2_sum : static_cast<float>(sum < 0 ? 0 : sum * bit);
}

}  // namespace

void launch_row_references(cudaStream_t stream, const Mixture& mixture, const float* records, Index slots,
                           Index rows, RowReference* references) {
  launch("finding where rows are normalised", row_references, grid_of(ceil_div(rows, threads)), threads,
         stream, mixture, records, slots, rows, references);
}

void launch_exact_losses(cudaStream_t stream, const float* records, Index slots, Index rows,
                         const RowReference* references, Ignored ignored, float* token_loss) {
  launch("adding up exact losses", exact_losses, grid_of(ceil_div(rows, threads)), threads, stream, records,
         slots, rows, references, ignored, token_loss);
}

}  // namespace fljsd::cuda::hopper
