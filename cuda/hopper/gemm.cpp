// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/gemm.h"

#include "cuda/hopper/cluster_launch.h"

namespace fljsd::cuda::hopper {
namespace {

constexpr const char* kernel_name = "the Hopper products";

ProductKernel find_kernel(Epilogue epilogue, fljsd_dtype dtype) {
  return epilogue == Epilogue::logits ? logits_kernel(dtype) : log_sum_exp_kernel(dtype);
}

}  // namespace

int most_product_clusters(Epilogue epilogue, fljsd_dtype dtype) {
  const ProductKernel kernel = find_kernel(epilogue, dtype);
  return clusters_that_fit(reinterpret_cast<const void*>(kernel.function), kernel.shared_bytes, kernel_name);
}

void launch_products(cudaStream_t stream, Epilogue epilogue, fljsd_dtype dtype, const ProductMaps& maps,
                     const ProductArguments& arguments) {
  const ProductKernel kernel = find_kernel(epilogue, dtype);
  // The kernel's parameters, which are copied before the call returns.
  void* parameters[] = {const_cast<ProductMaps*>(&maps), const_cast<ProductArguments*>(&arguments)};
  launch_clusters(stream, reinterpret_cast<const void*>(kernel.function), kernel.shared_bytes,
                  arguments.order.clusters, parameters, kernel_name);
}

}  // namespace fljsd::cuda::hopper
