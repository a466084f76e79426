// SPDX-License-Identifier: Apache-2.0
// Matrix products as bits: what is asked of a tensor core, and the shape in which it answers.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/dtype.h"

namespace fljsd::probe {

// A batch of products D = A·Bᵀ + C. Rows, columns and depth are whole instructions: multiples of 64, 8
// and 16.
struct Products {
  DType dtype = DType::bf16;  // of a and b: bf16 or f16
  Index batch = 0, rows = 0, cols = 0, depth = 0;
  std::vector<std::uint16_t> a;  // [batch, rows, depth]
  std::vector<std::uint16_t> b;  // [batch, cols, depth]
  std::vector<std::uint32_t>
      c;  // [batch, rows, cols], fp32 bits; empty: there is no accumulator to begin with
};

// The smallest product that a warp group's instruction computes.
constexpr Index tile_rows = 64, tile_cols = 8;

// Which instruction multiplies. Blocks of 16 along the depth are multiplied in ascending order, all into one
// fp32 accumulator.
enum class Instruction {
  wgmma_n8,    // wgmma.mma_async m64n8k16
  wgmma_n160,  // wgmma.mma_async m64n160k16, four in flight; bf16, without c, cols in 160s and depth in 64s
  mma,         // mma.sync m16n8k16
};
inline const char* name(Instruction instruction) {
  return instruction == Instruction::wgmma_n8     ? "wgmma-m64n8k16"
         : instruction == Instruction::wgmma_n160 ? "wgmma-m64n160k16"
                                                  : "mma-m16n8k16";
}

// D's fp32 bits, [batch, rows, cols], as the GPU computes them. Without c, wgmma begins with scale-d = 0, and
// mma with an accumulator of +0. Throws std::runtime_error with the CUDA error.
std::vector<std::uint32_t> multiply_on_device(Instruction instruction, const Products& products);

}  // namespace fljsd::probe
