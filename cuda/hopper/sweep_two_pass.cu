// SPDX-License-Identifier: Apache-2.0
// The two sweeps of stage `fused-two-pass`.
#include "cuda/hopper/exact_sums.cuh"
#include "cuda/hopper/sweep.cuh"
#include "cuda/hopper/sweep_instances.h"

namespace fljsd::cuda::hopper {
namespace {

template <class Sums, class Element>
SweepKernel kernel(bool general) {
  return {general ? sweep<Sums, Element, true> : sweep<Sums, Element, false>, Layout<Sums>::bytes};
}

template <class Sums>
SweepKernel kernel(fljsd_dtype dtype, bool general) {
  return dtype == FLJSD_BF16 ? kernel<Sums, __nv_bfloat16>(general) : kernel<Sums, __half>(general);
}

}  // namespace

SweepKernel normaliser_kernel(fljsd_dtype dtype, bool general) {
  return kernel<NormaliserSums>(dtype, general);
}
SweepKernel exact_kernel(fljsd_dtype dtype, bool general, bool small_share) {
  return small_share ? kernel<ExactSums<true>>(dtype, general) : kernel<ExactSums<false>>(dtype, general);
}

}  // namespace fljsd::cuda::hopper
