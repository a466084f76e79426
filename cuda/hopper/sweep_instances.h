// SPDX-License-Identifier: Apache-2.0
// The kernels that sweep_*.cu compile, for the launcher in sweep.cpp.
#pragma once

#include "cuda/hopper/sweep.h"

namespace fljsd::cuda::hopper {

struct SweepKernel {
  void (*function)(SweepMaps, SweepArguments) = nullptr;
  int shared_bytes = 0;
};

SweepKernel one_pass_kernel(fljsd_dtype dtype, bool general);
SweepKernel normaliser_kernel(fljsd_dtype dtype, bool general);
SweepKernel exact_kernel(fljsd_dtype dtype, bool general, bool small_share);
SweepKernel kl_kernel(bool teacher_first, fljsd_dtype dtype, bool general);

}  // namespace fljsd::cuda::hopper
