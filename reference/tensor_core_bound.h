// SPDX-License-Identifier: Apache-2.0
// A-priori error bound of a dot product on a tensor core. Proved in docs/error_analysis.md, section 11.
#pragma once

#include "reference/tensor_core.h"

namespace fljsd {

// A bound on |tensor_core_dot() − Σ a_k·b_k| for `count` products and an accumulator that starts at 0, in any
// order of the products. `absolute` >= Σ |a_k|·|b_k|, where a factor that is subnormal counts as the smallest
// normal number of its format. With B = ceil(count / block) blocks and F = fraction_bits:
//
//   B·(block·2^−F + 2^−23)·absolute  +  B·(block·2^(−126 − F) + 2^−149)
//
// For Hopper the factor is 5/16·2^−23 for each product: 5/8 of what γ_n with u = 2^−24 allows, to which
// truncation does not keep. Infinite where the sum may overflow.
double tensor_core_error(const TensorCore& core, double count, double absolute);

}  // namespace fljsd
