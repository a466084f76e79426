// SPDX-License-Identifier: Apache-2.0
// The sweep for beta = 0 and beta = 1.
#include "cuda/hopper/sweep.cuh"
#include "cuda/hopper/sweep_instances.h"

namespace fljsd::cuda::hopper {
namespace {

template <bool teacher_first, class Element, bool general>
SweepKernel kernel() {
  using Sums = KlSums<teacher_first>;
  return {sweep<Sums, Element, general>, Layout<Sums>::bytes};
}

template <bool teacher_first>
SweepKernel kernel(fljsd_dtype dtype, bool general) {
  if (dtype == FLJSD_BF16) {
    return general ? kernel<teacher_first, __nv_bfloat16, true>()
                   : kernel<teacher_first, __nv_bfloat16, false>();
  }
  return general ? kernel<teacher_first, __half, true>() : kernel<teacher_first, __half, false>();
}

}  // namespace

SweepKernel kl_kernel(bool teacher_first, fljsd_dtype dtype, bool general) {
  return teacher_first ? kernel<true>(dtype, general) : kernel<false>(dtype, general);
}

}  // namespace fljsd::cuda::hopper
