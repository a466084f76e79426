// SPDX-License-Identifier: Apache-2.0
#include "verify/probe/lt_order.h"

#include <algorithm>

namespace fljsd::probe {

std::string to_text(const SumOrder& order) {
  return "slices=" + std::to_string(order.slices) + " step=" + std::to_string(order.step) +
         " first_tile=" + std::to_string(order.first_tile);
}

float ordered_dot(const SumOrder& order, const TensorCore& core, DType dtype, const std::uint16_t* a,
                  const std::uint16_t* b, Index depth) {
  const Index steps = (depth + order.step - 1) / order.step;
  const Index piece = (steps + order.slices - 1) / order.slices * order.step;
  float total = 0;
  for (Index first = 0; first < depth; first += piece) {
    const Index length = std::min(piece, depth - first);
    const Index left_over = order.first_tile > 0 ? length % order.first_tile : 0;
    const float begun = tensor_core_dot(core, dtype, a + first, b + first, left_over);
    const float sum =
        tensor_core_dot(core, dtype, a + first + left_over, b + first + left_over, length - left_over, begun);
    total = first == 0 ? sum : total + sum;
  }
  return total;
}

}  // namespace fljsd::probe
