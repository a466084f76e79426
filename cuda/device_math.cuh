// SPDX-License-Identifier: Apache-2.0
// Small device functions: hardware exponentials, vector loads, sums in a fixed order. Errors of the
// hardware's functions are those that the PTX ISA states.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/fljsd.h"

namespace fljsd::cuda {

constexpr unsigned all_lanes = 0xffffffffu;

__device__ __forceinline__ float infinity() {
  return __int_as_float(0x7f800000);
}
__device__ __forceinline__ float nan_value() {
  return __int_as_float(0x7fffffff);
}
constexpr float largest_float = 3.402823466e38f;
constexpr float ln2 = 0.693147180559945f;

// 2^x, relative error <= 2^-22; results below 2^-126 are 0, and 2^-inf = 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// log2(x), absolute error <= 2^-22 on (0.5, 2), relative error <= 2^-22 elsewhere.
__device__ __forceinline__ float log2_fast(float x) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// sin and cos with an absolute error <= 2^-20.5 for |x| <= 2π, growing in proportion to |x| beyond.
__device__ __forceinline__ void sincos_fast(float x, float& sine, float& cosine) {
  asm("sin.approx.ftz.f32 %0, %1;" : "=f"(sine) : "f"(x));
  asm("cos.approx.ftz.f32 %0, %1;" : "=f"(cosine) : "f"(x));
}

// The larger one; NaN if either is (fmaxf returns the other one).
__device__ __forceinline__ float max_or_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

// log2(1+z) for |z| < 1/16 by its series; the term left out is z⁵/6 < 2e-7 of the result.
__device__ __forceinline__ float log2_1p_small(float z) {
  constexpr float log2_e = 1.44269504f;
  return z * fmaf(z, fmaf(z, fmaf(z, fmaf(z, 0.2f * log2_e, -0.25f * log2_e), log2_e / 3), -0.5f * log2_e),
                  log2_e);
}

// Four neighbours of a row, at a multiple of 16 bytes (fp32) or 8 bytes (bf16).
__device__ __forceinline__ float4 load4(const float* p) {
  return *reinterpret_cast<const float4*>(p);
}
__device__ __forceinline__ float4 load4(const __nv_bfloat16* p) {
  const uint2 bits = *reinterpret_cast<const uint2*>(p);
  return make_float4(__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xffff0000u),
                     __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xffff0000u));
}

// Stores four neighbours, each rounded once to nearest even, and returns the sum of what rounding took away.
// `dtype` is the same for the whole grid.
__device__ __forceinline__ float store4(void* row, fljsd_dtype dtype, std::int64_t column,
                                        const float (&g)[4]) {
  if (dtype == FLJSD_F32) {
    *reinterpret_cast<float4*>(static_cast<float*>(row) + column) = make_float4(g[0], g[1], g[2], g[3]);
    return 0;
  }
  uint2 bits;
  float rounded[4];
  if (dtype == FLJSD_BF16) {
    const __nv_bfloat162 a = __floats2bfloat162_rn(g[0], g[1]), b = __floats2bfloat162_rn(g[2], g[3]);
    bits = make_uint2(*reinterpret_cast<const unsigned*>(&a), *reinterpret_cast<const unsigned*>(&b));
    rounded[0] = __low2float(a), rounded[1] = __high2float(a), rounded[2] = __low2float(b),
    rounded[3] = __high2float(b);
  } else {
    const __half2 a = __floats2half2_rn(g[0], g[1]), b = __floats2half2_rn(g[2], g[3]);
    bits = make_uint2(*reinterpret_cast<const unsigned*>(&a), *reinterpret_cast<const unsigned*>(&b));
    rounded[0] = __low2float(a), rounded[1] = __high2float(a), rounded[2] = __low2float(b),
    rounded[3] = __high2float(b);
  }
  *reinterpret_cast<uint2*>(static_cast<std::uint16_t*>(row) + column) = bits;
  return ((g[0] - rounded[0]) + (g[1] - rounded[1])) + ((g[2] - rounded[2]) + (g[3] - rounded[3]));
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
