// SPDX-License-Identifier: Apache-2.0
// The logits of the input families as products.
#pragma once

#include "verify/cases/families.h"
#include "verify/probe/products.h"

namespace fljsd::probe {

// Sizes of every family's product: one tile of the wide instruction, and the usual hidden size.
constexpr Index family_tokens = 64, family_vocab = 160, family_hidden = 4096;

// student_input · student_weightᵀ of make_case() with these sizes, this seed, and the family's own strength.
Products family_product(DType dtype, const Family& family, std::uint64_t seed, Index tokens = family_tokens,
                        Index vocab = family_vocab, Index hidden = family_hidden);

}  // namespace fljsd::probe
