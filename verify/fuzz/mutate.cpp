// SPDX-License-Identifier: Apache-2.0
#include "verify/fuzz/mutate.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "verify/cases/random.h"

namespace fljsd {
namespace {

// A size one step up or down: by one, or by half.
Index step(Index size, Index choice, Index max) {
  const Index moved[] = {size - 1, size + 1, size / 2, size + (size + 1) / 2};
  return std::clamp<Index>(moved[choice], 1, std::max<Index>(1, max));
}

void scale_strength(Recipe& recipe, double factor) {
  const auto& strength = find_family(recipe.spec.family).strength;
  if (!strength) return;
  const std::optional<double> before = recipe.spec.strength;
  const double now = resolved_strength(recipe.spec);
  recipe.spec.strength = std::clamp(now == 0 ? factor : now * factor, strength->min, strength->max);
  try {
    resolved_strength(recipe.spec);
  } catch (const InvalidProblem&) {
    recipe.spec.strength = before;  // some families allow whole numbers only
  }
}

}  // namespace

Recipe mutated(const Recipe& recipe, std::uint64_t seed, const RecipeRange& range) {
  const Random random(seed, 0x6d757461746500);
  Index next = 0;
  const auto draw = [&](Index count) { return random.below(next++, count); };
  RecipeRange same_family = range;
  same_family.families = {recipe.spec.family};
  const Recipe other = random_recipe(random.word(next++), same_family);

  Recipe mutant = recipe;
  CaseSpec& spec = mutant.spec;
  for (Index changes = 1 + draw(3); changes > 0; --changes) {
    switch (draw(14)) {
      case 0: spec.tokens = step(spec.tokens, draw(4), std::max(range.max_tokens, recipe.spec.tokens)); break;
      case 1:
        spec.student_hidden =
            step(spec.student_hidden, draw(4), std::max(range.max_hidden, recipe.spec.student_hidden));
        break;
      case 2:
        if (spec.teacher_hidden != 0)
          spec.teacher_hidden = step(spec.teacher_hidden, draw(4), range.max_hidden);
        break;
      case 3: spec.vocab = step(spec.vocab, draw(4), std::max(range.max_vocab, recipe.spec.vocab)); break;
      case 4:
      case 5: spec.seed = other.spec.seed; break;
      case 6:
      case 7: scale_strength(mutant, std::exp2(static_cast<double>(draw(9) - 4) / 2)); break;
      case 8: spec.options.beta = other.spec.options.beta; break;
      case 9: spec.options.temperature = other.spec.options.temperature; break;
      case 10: mutant.biases = other.biases; break;
      case 11:
        spec.dtype = other.spec.dtype;
        mutant.dtypes = other.dtypes;
        break;
      case 12: mutant.edits = other.edits; break;
      default:
        mutant.ignored_percent = other.ignored_percent;
        mutant.poisoned = other.poisoned;
        spec.options.reduction = other.spec.options.reduction;
    }
  }
  if (spec.options.valid_vocab) spec.options.valid_vocab = std::min(*spec.options.valid_vocab, spec.vocab);
  return mutant;
}

}  // namespace fljsd
