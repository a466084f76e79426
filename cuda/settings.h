// SPDX-License-Identifier: Apache-2.0
// A configuration that was checked, with its defaults filled in, and the device it is for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <cuda_runtime_api.h>

#include "cuda/fljsd.h"

namespace fljsd::cuda {

using Index = std::int64_t;

// Bytes of an element; 0 for FLJSD_ABSENT.
constexpr Index size_of(fljsd_dtype dtype) {
  return dtype == FLJSD_F32 ? 4 : dtype == FLJSD_ABSENT ? 0 : 2;
}
const char* name(fljsd_dtype dtype);

struct Device {
  int ordinal = 0;
  int capability = 0;  // 10 * major + minor
  int multiprocessors = 0;
  std::string name;
};

// One of the two models.
struct Model {
  Index hidden = 0;
  Index input_ld = 0;
  Index weight_ld = 0;
  fljsd_dtype dtype = FLJSD_BF16;
  fljsd_dtype bias_dtype = FLJSD_ABSENT;
};

struct Settings {
  Index tokens = 0;
  Index vocab = 0;        // rows of the weight
  Index valid_vocab = 0;  // rows that exist
  Model student, teacher;
  Index input_grad_ld = 0;
  Index weight_grad_ld = 0;
  fljsd_dtype gradient_dtype = FLJSD_BF16;
  bool has_labels = false;
  Index ignore_index = -100;
  double beta = 0.5;
  double temperature = 1;
  fljsd_reduction reduction = FLJSD_BATCHMEAN;
  bool input_grad = false;
  bool weight_grad = false;
  bool bias_grad = false;
  std::string stage;
  Index memory_budget = 0;  // 0: the stage recommends
  Index chunk_tokens = 0;   // 0: the stage chooses
  Index chunk_vocab = 0;
  Index gradient_chunk_vocab = 0;
  Device device;
  bool counts_elsewhere = false;  // the divisor of the reduction counts tokens of other ranks too
  bool losses_alone = true;       // whether calls may want no gradients

  // Whether calls may ask for this pass.
  bool has(fljsd_pass pass) const { return pass == FLJSD_FORWARD ? losses_alone : any_grad(); }
  bool any_grad() const { return input_grad || weight_grad || bias_grad; }
  // Whether the divisor of the reduction is only known on the device.
  bool divisor_on_device() const { return (has_labels || counts_elsewhere) && reduction == FLJSD_BATCHMEAN; }
};

// Checks every field and finds the device. Throws Failure with a sentence naming the field, its value and
// what is allowed.
Settings check_config(const fljsd_config& config);

// The device with this ordinal; -1 is the current one. Throws Failure(FLJSD_NO_DEVICE).
Device find_device(int ordinal);

// One call: the caller's tensors (already checked), workspace and stream.
struct Call {
  fljsd_tensors tensors;
  std::byte* workspace = nullptr;
  cudaStream_t stream = nullptr;
};

constexpr Index ceil_div(Index a, Index b) {
  return (a + b - 1) / b;
}
constexpr Index round_up(Index a, Index to) {
  return ceil_div(a, to) * to;
}

// Element `index` of an array of `dtype`.
inline const void* at(const void* data, fljsd_dtype dtype, Index index) {
  return static_cast<const std::byte*>(data) + index * size_of(dtype);
}
inline void* at(void* data, fljsd_dtype dtype, Index index) {
  return static_cast<std::byte*>(data) + index * size_of(dtype);
}

}  // namespace fljsd::cuda
