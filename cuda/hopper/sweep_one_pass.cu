// SPDX-License-Identifier: Apache-2.0
// The sweep for 0 < beta < 1.
#include "cuda/hopper/sweep.cuh"
#include "cuda/hopper/sweep_instances.h"

namespace fljsd::cuda::hopper {
namespace {

template <class Element, bool general>
SweepKernel kernel() {
  using Sums = OnePassSums<general>;
  return {sweep<Sums, Element, general>, Layout<Sums>::bytes};
}

}  // namespace

SweepKernel one_pass_kernel(fljsd_dtype dtype, bool general) {
  if (dtype == FLJSD_BF16) return general ? kernel<__nv_bfloat16, true>() : kernel<__nv_bfloat16, false>();
  return general ? kernel<__half, true>() : kernel<__half, false>();
}

}  // namespace fljsd::cuda::hopper
