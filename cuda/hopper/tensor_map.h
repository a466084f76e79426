// SPDX-License-Identifier: Apache-2.0
// Descriptions of matrices for the tensor memory access unit.
#pragma once

#include <cuda.h>

#include "cuda/settings.h"

namespace fljsd::cuda::hopper {

// Whether the copy engine can read a row-major matrix of two-byte elements: data at a multiple of 16 bytes,
// rows too.
constexpr bool can_map(std::uintptr_t data, Index ld) {
  return data % 16 == 0 && ld % 8 == 0;
}

// A row-major matrix [rows, columns] of FLJSD_BF16 or FLJSD_F16, leading dimension ld, read in boxes of
// `box_rows` x 64 elements that arrive in the 128-byte swizzle. Outside the matrix a box holds zeros; bytes
// between the rows are not read. Throws Failure.
CUtensorMap make_tensor_map(const void* data, fljsd_dtype dtype, Index rows, Index columns, Index ld,
                            int box_rows);

}  // namespace fljsd::cuda::hopper
