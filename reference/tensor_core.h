// SPDX-License-Identifier: Apache-2.0
// What a tensor core computes, bit for bit: dot products of bf16 or fp16 with an fp32 accumulator.
//
// A tensor core does not round each addition. It adds a block of products and the accumulator at once, as
// integers: every addend is shifted to the exponent of the largest and what falls off is dropped, and so is
// what the sum has beyond the 24 bits of fp32. docs/error_analysis.md, section 11, says what of this was
// observed on a device and what is inferred; tensor_core_bound.h has the error bound.
#pragma once

#include <cstdint>

#include "reference/dtype.h"

namespace fljsd {

// What distinguishes one generation of tensor cores from another.
struct TensorCore {
  int block;           // products added to the accumulator at once: k ascending, block after block
  int fraction_bits;   // addends keep multiples of 2^(E − fraction_bits), E the largest exponent among them
  int least_exponent;  // E is never smaller

  bool operator==(const TensorCore&) const = default;
};

// H200, and so H100, with bf16 or fp16 operands, through wgmma and mma.sync alike; data/tensor_core holds its
// answers.
inline constexpr TensorCore hopper_tensor_core{.block = 16, .fraction_bits = 25, .least_exponent = -133};

// accumulator + Σ_k a[k]·b[k] for count elements of `dtype` (bf16 or f16) given by their bits; a last block
// that is not full is filled with +0. Takes and returns fp32. Throws std::invalid_argument for another dtype.
float tensor_core_dot(const TensorCore& core, DType dtype, const std::uint16_t* a, const std::uint16_t* b,
                      Index count, float accumulator = 0);

struct BoundedSum {
  float value;
  double
      error;  // at least |value − exact|; infinite where the value is not finite, 0 where nothing was dropped
};
// The same, with a bound that follows from what was dropped on the way: block after block, the unit of
// alignment for each addend that lost bits, and the last place of the sum if that did. docs/error_analysis.md
// proves it.
BoundedSum tensor_core_dot_with_bound(const TensorCore& core, DType dtype, const std::uint16_t* a,
                                      const std::uint16_t* b, Index count, float accumulator = 0);

}  // namespace fljsd
