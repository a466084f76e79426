// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/sweep.h"

#include <algorithm>

#include "cuda/failure.h"
#include "cuda/hopper/cluster_launch.h"
#include "cuda/hopper/sweep_instances.h"

namespace fljsd::cuda::hopper {
namespace {

constexpr const char* kernel_name = "the fused sweep";

SweepKernel find_kernel(const SweepKind& kind) {
  switch (kind.sums) {
    case SweepSums::one_pass: return one_pass_kernel(kind.dtype, kind.careful || kind.biased);
    case SweepSums::normalisers: return normaliser_kernel(kind.dtype, kind.biased);
    case SweepSums::terms: return exact_kernel(kind.dtype, kind.biased, kind.small_share);
    case SweepSums::teacher_kl: return kl_kernel(true, kind.dtype, kind.biased);
    case SweepSums::student_kl: return kl_kernel(false, kind.dtype, kind.biased);
  }
  return {};
}

}  // namespace

int most_clusters(SweepKind kind) {
  int most = 0;
  for (const bool biased : {false, true}) {  // both kernels of one_pass, too
    kind.biased = biased;
    const SweepKernel kernel = find_kernel(kind);
    const int fit =
        clusters_that_fit(reinterpret_cast<const void*>(kernel.function), kernel.shared_bytes, kernel_name);
    most = biased ? std::min(most, fit) : fit;
  }
  return most;
}

void launch_sweep(cudaStream_t stream, const SweepKind& kind, const SweepMaps& maps,
                  const SweepArguments& arguments) {
  const SweepKernel kernel = find_kernel(kind);
  // The kernel's parameters, which are copied before the call returns.
  void* parameters[] = {const_cast<SweepMaps*>(&maps), const_cast<SweepArguments*>(&arguments)};
  launch_clusters(stream, reinterpret_cast<const void*>(kernel.function), kernel.shared_bytes,
                  arguments.order.clusters, parameters, kernel_name);
}

}  // namespace fljsd::cuda::hopper
