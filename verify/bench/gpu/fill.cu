// SPDX-License-Identifier: Apache-2.0
#include "verify/bench/gpu/fill.h"

#include <stdexcept>

#include <cuda_bf16.h>

namespace fljsd::bench {
namespace {

// SplitMix64, by Steele, Lea and Flood (2014): a bijection whose outputs pass statistical tests.
__device__ std::uint64_t mix(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

__global__ void fill(__nv_bfloat16* data, std::int64_t count, bool uniform, float scale, std::uint64_t seed) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    const std::uint64_t bits = mix(mix(seed) + static_cast<std::uint64_t>(i));
    float value;
    if (uniform) {
      value = static_cast<float>(bits & 255) / 256;
    } else {  // Box and Muller
      const float radius = sqrtf(-2 * logf((static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f));
      value = scale * radius * cospif(static_cast<float>(bits & 0xffffff) * 0x1p-23f);
    }
    data[i] = __float2bfloat16(value);
  }
}

}  // namespace

Inputs parse_inputs(const std::string& text) {
  for (const Inputs inputs : {Inputs::uniform, Inputs::normal, Inputs::peaked}) {
    if (text == name(inputs)) return inputs;
  }
  throw std::invalid_argument("inputs is '" + text + "', but it must be uniform, normal or peaked.");
}

const char* name(Inputs inputs) {
  return inputs == Inputs::uniform ? "uniform" : inputs == Inputs::normal ? "normal" : "peaked";
}

void fill_bf16(void* data, std::int64_t count, Inputs inputs, bool is_weight, std::uint64_t seed) {
  const float scale = !is_weight ? 1.0f : inputs == Inputs::peaked ? 0.05f : 0.02f;
  fill<<<2048, 256>>>(static_cast<__nv_bfloat16*>(data), count, inputs == Inputs::uniform, scale, seed);
}

void poison(void* data, std::int64_t bytes) {
  cudaMemset(data, 0xff, static_cast<std::size_t>(bytes));
}

}  // namespace fljsd::bench
