// SPDX-License-Identifier: Apache-2.0
#include "verify/tests/gpu/loopback/rank_order_sum.h"

namespace fljsd::loopback {
namespace {

__global__ void rank_order_sum(Sources sources, int ranks, std::size_t count, float* out) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    float sum = sources.data[0][i];
    for (int r = 1; r < ranks; ++r) sum += sources.data[r][i];
    out[i] = sum;
  }
}

}  // namespace

cudaError_t enqueue_rank_order_sum(const Sources& sources, int ranks, std::size_t count, float* out,
                                   cudaStream_t stream) {
  rank_order_sum<<<256, 256, 0, stream>>>(sources, ranks, count, out);
  return cudaGetLastError();
}

}  // namespace fljsd::loopback
