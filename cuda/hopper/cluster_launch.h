// SPDX-License-Identifier: Apache-2.0
// Launching persistent kernels of clusters: 384 threads a block, one block a multiprocessor.
#pragma once

#include <cuda_runtime_api.h>

namespace fljsd::cuda::hopper {

// Clusters that the device runs at a time, at least 1; 0: it cannot run the kernel (not compute
// capability 9.0, or the library was built without sm_90a). Asks for the kernel's shared memory. The body of
// such a kernel must have static shared memory, and be empty in code for other targets.
int clusters_that_fit(const void* kernel, int dynamic_shared_bytes, const char* name);

// clusters_that_fit() must have been asked for this kernel. `parameters` as for cudaLaunchKernel.
void launch_clusters(cudaStream_t stream, const void* kernel, int dynamic_shared_bytes, int clusters,
                     void** parameters, const char* name);

}  // namespace fljsd::cuda::hopper
