// SPDX-License-Identifier: Apache-2.0
// Descriptions of matrices for the tensor memory access unit.
#pragma once

#include <cuda.h>

#include "cuda/settings.h"

namespace fljsd::cuda::hopper {

// The copy engine reads row-major matrices of two-byte elements that start at multiples of 16 bytes, as their
// rows do. Why it cannot read the inputs and weights of a plan, as the end of a sentence; empty if it can.
std::string obstacle_to_maps(const Settings& settings);
// Whether those of a call start where it can read them.
bool can_map(const fljsd_tensors& tensors);

// A row-major matrix [rows, columns] of FLJSD_BF16 or FLJSD_F16, leading dimension ld, read in boxes of
// `box_rows` x 64 elements that arrive in the 128-byte swizzle. Outside the matrix a box holds zeros; bytes
// between the rows are not read. Throws Failure.
CUtensorMap make_tensor_map(const void* data, fljsd_dtype dtype, Index rows, Index columns, Index ld,
                            int box_rows);

}  // namespace fljsd::cuda::hopper
