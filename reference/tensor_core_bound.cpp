// SPDX-License-Identifier: Apache-2.0
#include "reference/tensor_core_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fljsd {

double tensor_core_error(const TensorCore& core, double count, double absolute) {
  // Truncation never makes a sum larger than the sum of the addends' sizes, and 2^128 is the first that
  // overflows.
  if (!(absolute < 0x1p128)) return std::numeric_limits<double>::infinity();
  const double blocks = std::ceil(count / core.block);
  const double alignment = std::ldexp(static_cast<double>(core.block), -core.fraction_bits);
  // A subnormal accumulator has exponent −126, whatever its size.
  const double underflow = std::ldexp(alignment, std::max(core.least_exponent, -126)) + 0x1p-149;
  // Evaluated in double: a handful of roundings.
  return blocks * ((alignment + 0x1p-23) * absolute + underflow) * (1 + 0x1p-50);
}

}  // namespace fljsd
