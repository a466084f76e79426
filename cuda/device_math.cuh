// SPDX-License-Identifier: Apache-2.0
// Small device functions: vector loads and stores, sums over a warp in a fixed order.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/arithmetic.h"
#include "cuda/fljsd.h"

namespace fljsd::cuda {

constexpr unsigned all_lanes = 0xffffffffu;

// Four neighbours of a row, at a multiple of 16 bytes (fp32) or 8 bytes (bf16).
__device__ __forceinline__ float4 load4(const float* p) {
  return *reinterpret_cast<const float4*>(p);
}
__device__ __forceinline__ float4 load4(const __nv_bfloat16* p) {
  const uint2 bits = *reinterpret_cast<const uint2*>(p);
  return make_float4(__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xffff0000u),
                     __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xffff0000u));
}

// Stores four neighbours, each rounded once to nearest even. `dtype` is the same for the whole grid.
__device__ __forceinline__ void store4(void* row, fljsd_dtype dtype, std::int64_t column,
                                       const float (&g)[4]) {
  if (dtype == FLJSD_F32) {
    *reinterpret_cast<float4*>(static_cast<float*>(row) + column) = make_float4(g[0], g[1], g[2], g[3]);
    return;
  }
  uint2 bits;
  if (dtype == FLJSD_BF16) {
    const __nv_bfloat162 a = __floats2bfloat162_rn(g[0], g[1]), b = __floats2bfloat162_rn(g[2], g[3]);
    bits = make_uint2(*reinterpret_cast<const unsigned*>(&a), *reinterpret_cast<const unsigned*>(&b));
  } else {
    const __half2 a = __floats2half2_rn(g[0], g[1]), b = __floats2half2_rn(g[2], g[3]);
    bits = make_uint2(*reinterpret_cast<const unsigned*>(&a), *reinterpret_cast<const unsigned*>(&b));
  }
  *reinterpret_cast<uint2*>(static_cast<std::uint16_t*>(row) + column) = bits;
}

__device__ __forceinline__ float load_element(const void* data, fljsd_dtype dtype, std::int64_t i) {
  if (dtype == FLJSD_F32) return static_cast<const float*>(data)[i];
  if (dtype == FLJSD_BF16) return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
  return __half2float(static_cast<const __half*>(data)[i]);
}
__device__ __forceinline__ void store_element(void* data, fljsd_dtype dtype, std::int64_t i, float value) {
  if (dtype == FLJSD_F32) {
    static_cast<float*>(data)[i] = value;
  } else if (dtype == FLJSD_BF16) {
    static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(value);
  } else {
    static_cast<__half*>(data)[i] = __float2half_rn(value);
  }
}

// Butterflies: addition and max commute, so every lane ends with the same bits.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(all_lanes, value, distance);
  return value;
}
__device__ __forceinline__ double warp_sum(double value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(all_lanes, value, distance);
  return value;
}
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(all_lanes, value, distance));
  }
  return value;
}

}  // namespace fljsd::cuda
