// SPDX-License-Identifier: Apache-2.0
// Sizes of a campaign's recipes beyond those that most have: faults of tiled code show only where a loop over
// tiles goes round again, and some only where two or three loops do.
#pragma once

#include <cstdint>

#include "verify/cases/recipe.h"

namespace fljsd {

struct SizeLimits {
  Index tokens, hidden, vocab;
};

// The recipe with one of its sizes drawn up to its limit, often from the upper quarter or next to a power of
// two. What was cut off by valid_vocab stays cut off. A pure function of its arguments.
Recipe with_one_long_size(const Recipe& recipe, std::uint64_t seed, const SizeLimits& limits);

// The recipe with two or all of its sizes at the second and third tile of the usual tile sizes, as far as the
// limits allow, so that the case has at most 129³ products. A pure function of its arguments.
Recipe with_several_tiles(const Recipe& recipe, std::uint64_t seed, const SizeLimits& limits);

}  // namespace fljsd
