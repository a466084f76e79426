// SPDX-License-Identifier: Apache-2.0
// The fp32 operations that kernels are written in, so that the same source runs on the device and, in tests,
// on the host. Device: the hardware's instructions, with the errors that the PTX ISA states. Host: a value
// that is off by up to as much, by a factor that depends on the argument's bits alone.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

// Marks what both compile. nvcc defines __CUDACC__; a C++ compiler sees an inline function.
#if defined(__CUDACC__)
#define FLJSD_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define FLJSD_HOST_DEVICE inline
#endif
// Before a loop over a small array, which is to stay in registers.
#if defined(__CUDA_ARCH__)
#define FLJSD_UNROLL _Pragma("unroll")
#else
#define FLJSD_UNROLL
#endif

namespace fljsd::cuda {

constexpr float largest_float = 3.402823466e38f;
constexpr float ln2 = 0.693147180559945f;
constexpr float log2_e = 1.44269504f;

FLJSD_HOST_DEVICE float infinity() {
  return std::numeric_limits<float>::infinity();
}
FLJSD_HOST_DEVICE float nan_value() {
  return std::numeric_limits<float>::quiet_NaN();
}

#if !defined(__CUDA_ARCH__)
namespace host {

// A number in [−1, 1] made from the bits of x: an error that is as good as random, and the same every time.
inline double noise(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits ^ (bits >> 16)) * 0x7feb352du;
  bits = (bits ^ (bits >> 15)) * 0x846ca68bu;
  return static_cast<double>(bits ^ (bits >> 16)) / 0x7fffffffp0 - 1;
}
inline float flushed(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

}  // namespace host
#endif

// 2^x, relative error <= 2^-22; results below 2^-126 are 0, 2^-inf = 0 and 2^0 = 1.
FLJSD_HOST_DEVICE float exp2_fast(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  if (x == 0) return 1;
  const double exact = std::exp2(static_cast<double>(x));
  return host::flushed(static_cast<float>(exact + 0x1p-22 * host::noise(x) * exact));
#endif
}

// log2(x), absolute error <= 2^-22 on (0.5, 2), relative error <= 2^-22 elsewhere.
FLJSD_HOST_DEVICE float log2_fast(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  const double exact = std::log2(static_cast<double>(host::flushed(x)));
  if (!std::isfinite(exact) || x == 1) return static_cast<float>(exact);
  const double size = x > 0.5f && x < 2 ? 1 : exact;
  return static_cast<float>(exact + 0x1p-22 * host::noise(x) * size);
#endif
}

// sin and cos with an absolute error <= 2^-20.5 for |x| <= 2π, growing in proportion to |x| beyond.
FLJSD_HOST_DEVICE void sincos_fast(float x, float& sine, float& cosine) {
#if defined(__CUDA_ARCH__)
  asm("sin.approx.ftz.f32 %0, %1;" : "=f"(sine) : "f"(x));
  asm("cos.approx.ftz.f32 %0, %1;" : "=f"(cosine) : "f"(x));
#else
  // 2^-20.5 for a turn; seen on hardware 2^-21.4 (docs of CUDA's intrinsics).
  const double size = std::fmax(1.0, std::abs(static_cast<double>(x)) / 6.283185307) * 0x1.6ap-21;
  sine = static_cast<float>(std::sin(static_cast<double>(x)) + (x == 0 ? 0 : size * host::noise(x)));
  cosine = static_cast<float>(std::cos(static_cast<double>(x)) + (x == 0 ? 0 : size * host::noise(-x)));
#endif
}

// The larger one; NaN if either is (fmaxf returns the other one).
FLJSD_HOST_DEVICE float max_or_nan(float a, float b) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return std::isnan(a) || std::isnan(b) ? nan_value() : std::fmax(a, b);
#endif
}

// a·b, rounded before anything is added to it.
FLJSD_HOST_DEVICE float rounded_product(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

// log2(1+z) for |z| < 1/16 by its series; the term left out is z⁵/6 < 2e-7 of the result.
FLJSD_HOST_DEVICE float log2_1p_small(float z) {
  return z * fmaf(z, fmaf(z, fmaf(z, fmaf(z, 0.2f * log2_e, -0.25f * log2_e), log2_e / 3), -0.5f * log2_e),
                  log2_e);
}

// Adds v to the unevaluated sum hi + lo. An infinite or NaN sum is its own answer.
FLJSD_HOST_DEVICE void add_compensated(float& hi, float& lo, float v) {
  const float sum = hi + v;
  const float back = sum - hi;
  const float lost = (hi - (sum - back)) + (v - back);
  if (fabsf(sum) < infinity()) lo += lost;
  hi = sum;
}

}  // namespace fljsd::cuda
