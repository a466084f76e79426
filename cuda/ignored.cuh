// SPDX-License-Identifier: Apache-2.0
// Whether a token counts, asked on the device.
#pragma once

#include "cuda/row_kernels.h"

namespace fljsd::cuda {

// `token`: from the first one that `ignored` is about.
__device__ __forceinline__ bool is_ignored(const Ignored& ignored, Index token) {
  return ignored.labels != nullptr && ignored.labels[token] == ignored.ignore_index;
}

}  // namespace fljsd::cuda
