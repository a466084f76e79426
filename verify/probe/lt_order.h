// SPDX-License-Identifier: Apache-2.0
// The orders in which cuBLASLt's kernels sum a dot product, as far as answers showed.
#pragma once

#include <string>

#include "reference/tensor_core.h"

namespace fljsd::probe {

// The depth is cut into `slices` pieces of ceil(ceil(depth / step) / slices) · step elements, the last ones
// shorter. The tensor core sums each from +0, blocks ascending; what is left over when a piece is cut into
// tiles of `first_tile` elements comes first, filled with +0 to whole blocks (0: no such tile, the end of the
// piece is filled). The pieces are added in fp32, rounded to nearest, ascending.
struct SumOrder {
  int slices;
  Index step;
  Index first_tile;
};
std::string to_text(const SumOrder& order);

float ordered_dot(const SumOrder& order, const TensorCore& core, DType dtype, const std::uint16_t* a,
                  const std::uint16_t* b, Index depth);

}  // namespace fljsd::probe
