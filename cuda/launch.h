// SPDX-License-Identifier: Apache-2.0
// One way to launch a kernel: arguments converted to its parameters, errors reported with what was being
// done.
#pragma once

#include <cuda_runtime.h>

#include "cuda/failure.h"
#include "cuda/settings.h"

namespace fljsd::cuda {

// `doing` completes "CUDA reported ... while ...".
template <class... Parameters, class... Values>
void launch(const char* doing, void (*kernel)(Parameters...), dim3 grid, dim3 threads, cudaStream_t stream,
            const Values&... values) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = threads;
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(values)...), doing);
}

// A grid of one dimension. Throws Failure(FLJSD_UNSUPPORTED) when it cannot have that many blocks.
inline dim3 grid_of(Index blocks) {
  if (blocks > 0x7fffffff)
    fail(FLJSD_UNSUPPORTED, "A launch needs ", blocks, " blocks, more than a grid can have.");
  return dim3(static_cast<unsigned>(blocks));
}

}  // namespace fljsd::cuda
