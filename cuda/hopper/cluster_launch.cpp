// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/cluster_launch.h"

#include <cstddef>
#include <string>

#include "cuda/failure.h"
#include "cuda/hopper/tile_order.h"

namespace fljsd::cuda::hopper {
namespace {

constexpr int threads = 384;

// `attribute` must live as long as the configuration.
cudaLaunchConfig_t configure(int dynamic_shared_bytes, int clusters, cudaLaunchAttribute& attribute) {
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {cluster_size, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(clusters * cluster_size));
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = static_cast<std::size_t>(dynamic_shared_bytes);
  config.attrs = &attribute;
  config.numAttrs = 1;
  return config;
}

}  // namespace

int clusters_that_fit(const void* kernel, int dynamic_shared_bytes, const char* name) {
  cudaFuncAttributes attributes{};
  // The body exists in sm_90a code only; any other code of the kernel, or none, means that it cannot run
  // here.
  if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess || attributes.sharedSizeBytes == 0) {
    cudaGetLastError();
    return 0;
  }
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic_shared_bytes),
        (std::string("asking for the shared memory of ") + name).c_str());
  cudaLaunchAttribute cluster{};
  const cudaLaunchConfig_t config = configure(dynamic_shared_bytes, 1, cluster);
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config), "counting the clusters that fit");
  return clusters;
}

void launch_clusters(cudaStream_t stream, const void* kernel, int dynamic_shared_bytes, int clusters,
                     void** parameters, const char* name) {
  cudaLaunchAttribute cluster{};
  cudaLaunchConfig_t config = configure(dynamic_shared_bytes, clusters, cluster);
  config.stream = stream;
  check(cudaLaunchKernelExC(&config, kernel, parameters), (std::string("launching ") + name).c_str());
}

}  // namespace fljsd::cuda::hopper
