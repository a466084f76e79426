// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/sweep.h"

#include "cuda/failure.h"
#include "cuda/hopper/sweep_instances.h"

namespace fljsd::cuda::hopper {
namespace {

constexpr int threads = 384;

SweepKernel find_kernel(const SweepKind& kind) {
  if (kind.divergence == Divergence::mixture)
    return kind.basis == Basis::twelve ? one_pass_kernel(kind.dtype, kind.general)
                                       : fine_one_pass_kernel(kind.dtype, kind.general);
  return kl_kernel(kind.divergence == Divergence::teacher_kl, kind.dtype, kind.general);
}

// `attributes` must live as long as the configuration.
cudaLaunchConfig_t configure(const SweepKernel& kernel, int clusters, cudaLaunchAttribute& attributes) {
  attributes.id = cudaLaunchAttributeClusterDimension;
  attributes.val.clusterDim = {cluster_size, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(clusters * cluster_size));
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = static_cast<std::size_t>(kernel.shared_bytes);
  config.attrs = &attributes;
  config.numAttrs = 1;
  return config;
}

}  // namespace

int most_clusters(const SweepKind& kind) {
  const SweepKernel kernel = find_kernel(kind);
  const void* const function = reinterpret_cast<const void*>(kernel.function);
  cudaFuncAttributes attributes{};
  // The body exists in sm_90a code only; any other code of the kernel, or none, means that it cannot run
  // here.
  if (cudaFuncGetAttributes(&attributes, function) != cudaSuccess || attributes.sharedSizeBytes == 0) {
    cudaGetLastError();
    return 0;
  }
  check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel.shared_bytes),
        "asking for the fused sweep's shared memory");
  cudaLaunchAttribute cluster{};
  const cudaLaunchConfig_t config = configure(kernel, 1, cluster);
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, function, &config), "counting the clusters that fit");
  return clusters;
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
  cudaLaunchAttribute cluster{};
  cudaLaunchConfig_t config = configure(kernel, arguments.order.clusters, cluster);
  config.stream = stream;
  // The kernel's parameters, which are copied before the call returns.
  void* parameters[] = {const_cast<SweepMaps*>(&maps), const_cast<SweepArguments*>(&arguments)};
  check(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel.function), parameters),
        "launching the fused sweep");
}

}  // namespace fljsd::cuda::hopper
