// SPDX-License-Identifier: Apache-2.0
// From a counterexample to a minimal one.
#pragma once

#include <functional>

#include "verify/cases/recipe.h"

namespace fljsd {

struct Shrunk {
  Recipe recipe;
  bool minimal = false;  // no simpler recipe fails; false: `may_go_on` said no
  int tried = 0;
};

// Moves to the first of simpler(recipe) that still fails, until none does; then to any smaller size. Then
// sizes once more, with other seeds: what fails at 2 × 3 for one seed in ten is a better example than what
// fails at 7 × 20 for this one. `still_fails` must be true of the same kind of failure as the first: a recipe
// that fails for another reason is a counterexample to something else, and moving to it would hide this one.
Shrunk shrink(const Recipe& recipe, const std::function<bool(const Recipe&)>& still_fails,
              const std::function<bool()>& may_go_on);

}  // namespace fljsd
