// SPDX-License-Identifier: Apache-2.0
// The products with log-sum-exps in the place of logits.
//
// u = log2(e)·x, where log2(e) is a float. Of the 256 entries of a row in a tile an epilogue forms
//
//   reference = max u, as u is rounded;  sum = Σ 2^(u − reference)
//
// u − reference is one fma, rounded once, so that a large reference costs no digits. The four lanes of a row
// add up what they have and write one record; the merge kernel adds the records of a row in double:
//
//   log-sum-exp = (R + log2 Σ_tiles sum·2^(reference − R)) / log2(e), R the largest reference.
//
// Divided by the same float, the relative error 2^-26 of log2(e) only scales the differences of logits.
// Error of Σ, relative: a lane adds 64 terms in four chains, 16 + 2 additions of positive terms, then 2
// across lanes, each 2^-24; ex2.approx 2^-22; u − reference is rounded by 2^-24·|u − reference|, whose mean
// over a softmax is below ln(256)/ln 2 = 8 where entries are weighted by their share: together below 34·2^-24
// = 2.0e-6. That is the absolute error of a log-sum-exp, apart from the products'.
#include "cuda/device_math.cuh"
#include "cuda/hopper/gemm.cuh"
#include "cuda/launch.h"

namespace fljsd::cuda::hopper {
namespace {

// Its functions are called in sm_90a code only: elsewhere the kernel has no body.
class SumExps {
 public:
  static constexpr int shared_bytes = 0;

  __device__ SumExps(const ProductMaps&, const ProductArguments& p, std::uint32_t, int thread)
      : p_(p), quad_lane_(thread % 4), first_row_(thread % 128 / 32 * 16 + thread % 32 / 4) {}

  [[maybe_unused]] __device__ __forceinline__ void take(float (&d)[product::accumulators_of_thread],
                                                        const ProductTile& tile, int first_token) {
    const int first_entry = tile.column * product_columns + 2 * quad_lane_;
    if (tile.column + 1 == p_.order.column_tiles) {  // columns that do not exist
#pragma unroll
      for (int i = 0; i < product::accumulators_of_thread; ++i) {
        if (first_entry + i / 4 * 8 + i % 2 >= p_.vocab) d[i] = -infinity();
      }
    }
    PartialSum* const out = p_.partial_sums + tile.product * p_.partial_sums_of_product() +
                            std::int64_t{tile.column} * p_.order.token_blocks * block_rows + first_token +
                            first_row_;
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // rows first_row_ and + 8
      const auto x = [&](int i) { return d[4 * (i / 2) + 2 * half + i % 2]; };
      constexpr int entries = product::accumulators_of_thread / 2, chains = 4;
      float largest[chains], sums[chains];
#pragma unroll
      for (int i = 0; i < chains; ++i) largest[i] = x(i), sums[i] = 0;
#pragma unroll
      for (int i = chains; i < entries; ++i) largest[i % chains] = fmaxf(largest[i % chains], x(i));
      float most = fmaxf(fmaxf(largest[0], largest[1]), fmaxf(largest[2], largest[3]));
      most = fmaxf(most, __shfl_xor_sync(all_lanes, most, 1));
      most = fmaxf(most, __shfl_xor_sync(all_lanes, most, 2));
      const float reference = most * log2_e;
      const float shift = most == -infinity() ? 0 : -reference;
#pragma unroll
      for (int i = 0; i < entries; ++i) sums[i % chains] += exp2_fast(__fmaf_rn(x(i), log2_e, shift));
      float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
      sum += __shfl_xor_sync(all_lanes, sum, 1);
      sum += __shfl_xor_sync(all_lanes, sum, 2);
      if (quad_lane_ == 0) out[8 * half] = {reference, sum};
    }
  }
  [[maybe_unused]] __device__ void finish() {}

 private:
  const ProductArguments& p_;
  int quad_lane_, first_row_;
};

// A block is 32 tokens (threadIdx.x) by 32 shares of the column tiles (threadIdx.y).
__global__ void __launch_bounds__(1024) merge(const ProductArguments p, int tokens, float* differences) {
  __shared__ float references[32][33];
  __shared__ double sums[32][33];
  const int token = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x);
  const std::int64_t rows = std::int64_t{p.order.token_blocks} * block_rows;
  double log_sum_exp[2];
#pragma unroll
  for (int product = 0; product < 2; ++product) {
    const PartialSum* const records = p.partial_sums + product * p.partial_sums_of_product() + token;
    float largest = -infinity();
    for (int tile = static_cast<int>(threadIdx.y); tile < p.order.column_tiles; tile += 32)
      largest = fmaxf(largest, records[tile * rows].reference);
    references[threadIdx.y][threadIdx.x] = largest;
    __syncthreads();
    for (int i = 0; i < 32; ++i) largest = fmaxf(largest, references[i][threadIdx.x]);
    double sum = 0;
    for (int tile = static_cast<int>(threadIdx.y); tile < p.order.column_tiles; tile += 32) {
      const PartialSum record = records[tile * rows];
      // A sum of 0 comes with a reference of -inf, and so may the largest one.
      if (record.sum != 0)
        sum += static_cast<double>(record.sum) *
               exp2(static_cast<double>(record.reference) - static_cast<double>(largest));
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    double total = 0;
    for (int i = 0; i < 32; ++i) total += sums[i][threadIdx.x];
    log_sum_exp[product] = total == 0
                               ? static_cast<double>(-infinity())
                               : (static_cast<double>(largest) + log2(total)) / static_cast<double>(log2_e);
    __syncthreads();
  }
  if (threadIdx.y == 0 && token < tokens)
    differences[token] = static_cast<float>(log_sum_exp[0] - log_sum_exp[1]);
}

template <class Element>
ProductKernel kernel() {
  return {product::multiply<Element, SumExps>, product::shared_bytes(SumExps::shared_bytes)};
}

}  // namespace

ProductKernel log_sum_exp_kernel(fljsd_dtype dtype) {
  return dtype == FLJSD_BF16 ? kernel<__nv_bfloat16>() : kernel<__half>();
}

void launch_merge_log_sum_exps(cudaStream_t stream, const ProductArguments& arguments, int tokens,
                               float* differences) {
  launch("merging the log-sum-exps", merge, grid_of(ceil_div(tokens, 32)), dim3(32, 32), stream, arguments,
         tokens, differences);
}

}  // namespace fljsd::cuda::hopper
