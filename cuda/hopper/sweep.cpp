// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/sweep.h"

#include "cuda/failure.h"
#include "cuda/hopper/cluster_launch.h"
#include "cuda/hopper/sweep_instances.h"

namespace fljsd::cuda::hopper {
namespace {

constexpr const char* kernel_name = "the fused sweep";

SweepKernel find_kernel(const SweepKind& kind) {
  if (kind.divergence == Divergence::mixture)
    return kind.basis == Basis::twelve ? one_pass_kernel(kind.dtype, kind.general)
                                       : fine_one_pass_kernel(kind.dtype, kind.general);
  return kl_kernel(kind.divergence == Divergence::teacher_kl, kind.dtype, kind.general);
}

}  // namespace

int most_clusters(const SweepKind& kind) {
  const SweepKernel kernel = find_kernel(kind);
  return clusters_that_fit(reinterpret_cast<const void*>(kernel.function), kernel.shared_bytes, kernel_name);
}

unsigned lockstep_steps(const TileOrder& order, int student_k_blocks, int teacher_k_blocks) {
  const auto steps = [](int blocks) {
    return static_cast<unsigned>(blocks + lockstep_blocks - 1) / lockstep_blocks;
  };
  unsigned tiles = 0;
  for (Group g = order.first(); g.blocks > 0; g = order.after(g)) {
    tiles += static_cast<unsigned>((g.blocks * order.column_tiles + order.clusters - 1) / order.clusters);
  }
  return tiles * (steps(student_k_blocks) + steps(teacher_k_blocks));
}

void launch_sweep(cudaStream_t stream, const SweepKind& kind, const SweepMaps& maps,
                  const SweepArguments& arguments) {
  const SweepKernel kernel = find_kernel(kind);
  check(cudaMemsetAsync(arguments.progress, 0, sizeof(unsigned), stream), "clearing the lockstep's counter");
  // The kernel's parameters, which are copied before the call returns.
  void* parameters[] = {const_cast<SweepMaps*>(&maps), const_cast<SweepArguments*>(&arguments)};
  launch_clusters(stream, reinterpret_cast<const void*>(kernel.function), kernel.shared_bytes,
                  arguments.order.clusters, parameters, kernel_name);
}

}  // namespace fljsd::cuda::hopper
