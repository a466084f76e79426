// SPDX-License-Identifier: Apache-2.0
// Launches the plain Hopper products of gemm.cuh: both models' logits, written or reduced to log-sum-exps.
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "cuda/fljsd.h"
#include "cuda/hopper/product_order.h"

namespace fljsd::cuda::hopper {

// What the copy engine needs to know, by product. Boxes of cta_rows rows of the inputs, of product_columns /
// cluster_size rows of the weights, and of logits_box_rows rows of the logits (Epilogue::logits only).
struct ProductMaps {
  CUtensorMap input[2], weight[2], logits[2];
};

constexpr int logits_box_rows = 16;  // a warp writes its own

// The sum of 2^(u − reference) over a row's entries of a tile, u = log2(e)·logit.
struct PartialSum {
  float reference = 0;  // the largest u; -inf if all are, and then the sum is 0
  float sum = 0;
};

struct ProductArguments {
  ProductOrder order;
  int vocab = 0;                       // entries that exist
  int k_blocks[2] = {};                // hidden in blocks of 64, rounded up
  PartialSum* partial_sums = nullptr;  // [product][column tile][block of tokens][row], Epilogue::log_sum_exp

  constexpr std::int64_t partial_sums_of_product() const { return std::int64_t{order.tiles()} * block_rows; }
};

enum class Epilogue { logits, log_sum_exp };

// Clusters that the device runs at a time, at least 1; 0: it cannot run the kernel.
int most_product_clusters(Epilogue epilogue, fljsd_dtype dtype);

// most_product_clusters() must have been asked before.
void launch_products(cudaStream_t stream, Epilogue epilogue, fljsd_dtype dtype, const ProductMaps& maps,
                     const ProductArguments& arguments);

// differences[t] = log-sum-exp of the student's row t − that of the teacher's, for t in [0, tokens).
void launch_merge_log_sum_exps(cudaStream_t stream, const ProductArguments& arguments, int tokens,
                               float* differences);

// The kernels, one file each.
struct ProductKernel {
  void (*function)(ProductMaps, ProductArguments) = nullptr;
  int shared_bytes = 0;
};
ProductKernel logits_kernel(fljsd_dtype dtype);
ProductKernel log_sum_exp_kernel(fljsd_dtype dtype);

}  // namespace fljsd::cuda::hopper
