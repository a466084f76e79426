// SPDX-License-Identifier: Apache-2.0
// Inputs of the benchmark, drawn on the device.
#pragma once

#include <cstdint>
#include <string>

namespace fljsd::bench {

enum class Inputs {
  uniform,  // k/256, k = 0..255, in all tensors: what the published workload draws in bf16
  normal,   // inputs N(0, 1), weights N(0, 0.02²): logits have a standard deviation of 0.02·sqrt(hidden)
  peaked,   // inputs N(0, 1), weights N(0, 0.05²)
};
Inputs parse_inputs(const std::string& name);  // throws std::invalid_argument
const char* name(Inputs inputs);

// `count` bf16 numbers. Each element depends on (seed, index) only.
void fill_bf16(void* data, std::int64_t count, Inputs inputs, bool is_weight, std::uint64_t seed);

// Sets `count` bytes to 0xff: NaN in every format.
void poison(void* data, std::int64_t bytes);

}  // namespace fljsd::bench
