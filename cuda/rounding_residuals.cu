// SPDX-License-Identifier: Apache-2.0
#include "cuda/rounding_residuals.h"

#include "cuda/batch_kernels.h"
#include "cuda/device_math.cuh"
#include "cuda/failure.h"
#include "cuda/launch.h"

namespace fljsd::cuda {
namespace {

constexpr int threads = 256;

// One block a row.
__global__ void __launch_bounds__(threads)
    residual_product(const __grid_constant__ ResidualLists lists, const __grid_constant__ ResidualProduct p,
                     const __grid_constant__ Factor known) {
  const Index row = blockIdx.x;
  const unsigned listed = lists.counts[row], thread = threadIdx.x;
  const unsigned count = listed <= ResidualLists::most ? listed : 0;
  if (count == 0) return;
  __shared__ Residual sorted[ResidualLists::most];
  if (thread < count) {  // an entry is listed once, so ranks differ
    const Residual* list = lists.data + row * ResidualLists::most;
    const Residual own = list[thread];
    unsigned rank = 0;
    for (unsigned i = 0; i < count; ++i) rank += list[i].entry < own.entry ? 1 : 0;
    sorted[rank] = own;
  }
  __syncthreads();
  const float factor = known.scalars != nullptr ? known.scalars->alpha : known.alpha;
  const auto* weight = static_cast<const __nv_bfloat16*>(p.weight);
  for (Index c = thread; c < p.columns; c += threads) {
    float sum = 0;
    for (unsigned i = 0; i < count; ++i) {
      sum = fmaf(sorted[i].value, __bfloat162float(weight[sorted[i].entry * p.weight_ld + c]), sum);
    }
    p.out[row * p.out_ld + c] += factor * sum;
  }
}

}  // namespace

bool wants_residuals(const Settings& s) {
  return s.input_grad && s.student.dtype == FLJSD_BF16 && s.beta < 1;
}

ResidualLists take_residuals(const Settings& s, Workspace& workspace, Index rows) {
  ResidualLists lists;
  if (!wants_residuals(s)) return lists;
  lists.data = workspace.take<Residual>(rows * ResidualLists::most);
  lists.counts = workspace.take<unsigned>(rows);
  return lists;
}

void clear_residuals(cudaStream_t stream, const ResidualLists& lists, Index rows) {
  if (lists.counts == nullptr) return;
  check(cudaMemsetAsync(lists.counts, 0, static_cast<std::size_t>(rows) * sizeof(unsigned), stream),
        "clearing the lists of rounding residuals");
}

void launch_residual_product(cudaStream_t stream, const ResidualLists& lists, const ResidualProduct& product,
                             const Factor& factor) {
  launch("giving rounding residuals back", residual_product, grid_of(product.rows), threads, stream, lists,
         product, factor);
}

}  // namespace fljsd::cuda
