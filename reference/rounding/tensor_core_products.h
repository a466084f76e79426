// SPDX-License-Identifier: Apache-2.0
// The product that gives the logits, as a tensor core computes it.
#pragma once

#include <span>
#include <vector>

#include "reference/problem.h"
#include "reference/tensor_core.h"

namespace fljsd {

// Whether tensor cores take these operands as they are: both bf16 or both f16.
bool suits_tensor_core(const MatrixView& input, const MatrixView& weight);

// input[tokens] · weightᵀ for the first `vocab` rows of the weight, packed [tokens.size(), vocab]: element
// (t, v) is tensor_core_dot() of the two rows over the whole hidden size, with one accumulator that starts at
// +0. The operands must suit; hidden is padded with +0 to whole blocks.
std::vector<float> tensor_core_products(const TensorCore& core, const MatrixView& input,
                                        std::span<const Index> tokens, const MatrixView& weight, Index vocab);

}  // namespace fljsd
