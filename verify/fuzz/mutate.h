// SPDX-License-Identifier: Apache-2.0
// Directed search: recipes near one that came close to its bound.
#pragma once

#include "verify/cases/recipe.h"

namespace fljsd {

// The recipe with one to three of its parts changed: a size by one or by half, the strength by a factor, the
// seed, or a part taken from random_recipe(). The family stays. A pure function of its arguments; sizes stay
// in the range, or below what they are.
Recipe mutated(const Recipe& recipe, std::uint64_t seed, const RecipeRange& range);

}  // namespace fljsd
