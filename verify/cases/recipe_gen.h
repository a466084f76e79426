// SPDX-License-Identifier: Apache-2.0
// Recipes for RapidCheck: rc::check draws a Recipe, prints it as its line of text, and shrinks it by
// simpler().
#pragma once

#include <rapidcheck.h>

#include <ostream>

#include "verify/cases/recipe.h"

namespace fljsd {

// Any recipe in the range. RapidCheck's own size parameter is not used: sizes come from the range.
inline rc::Gen<Recipe> any_recipe(const RecipeRange& range = {}) {
  return [range](rc::Random random, int) {
    return rc::shrinkable::shrinkRecur(random_recipe(random.next(), range), [](const Recipe& recipe) {
      return rc::seq::fromContainer(simpler(recipe));
    });
  };
}

// How RapidCheck prints a recipe.
inline void showValue(const Recipe& recipe, std::ostream& out) {
  out << to_text(recipe);
}

}  // namespace fljsd
