// SPDX-License-Identifier: Apache-2.0
#include "verify/fuzz/sizes.h"

#include <algorithm>
#include <iterator>

#include "verify/cases/random.h"

namespace fljsd {
namespace {

// `number` of four draws for one size.
Index long_size(const Random& random, Index number, Index limit) {
  const Index first = 4 * number;
  switch (random.below(first, 5)) {
    case 0: {
      const auto awkward = awkward_sizes();
      const auto fitting = std::upper_bound(awkward.begin(), awkward.end(), limit) - awkward.begin();
      return awkward[static_cast<std::size_t>(random.below(first + 1, fitting))];
    }
    case 1: {
      Index powers = 1;  // 2, 4, ... as far as they are below the limit
      while (Index{2} << powers < limit) ++powers;
      const Index power = Index{2} << random.below(first + 1, powers);
      return std::clamp<Index>(power - 1 + random.below(first + 2, 3), 1, limit);
    }
    case 2: return 1 + random.below(first + 1, limit);
    default: return limit - random.below(first + 1, std::max<Index>(1, limit / 4));
  }
}

Index tiles(const Random& random, Index number, Index limit) {
  constexpr Index sizes[] = {64, 65, 127, 128, 129};
  return std::min(limit, sizes[random.below(number, std::size(sizes))]);
}

void set_vocab(CaseSpec& spec, Index vocab) {
  std::optional<Index>& valid = spec.options.valid_vocab;
  if (valid) valid = std::max<Index>(1, vocab - (spec.vocab - *valid));
  spec.vocab = vocab;
}

}  // namespace

Recipe with_one_long_size(const Recipe& recipe, std::uint64_t seed, const SizeLimits& limits) {
  const Random random(seed, 0x6c6f6e67);
  Recipe longer = recipe;
  CaseSpec& spec = longer.spec;
  switch (random.below(0, 3)) {
    case 0: spec.tokens = long_size(random, 1, limits.tokens); break;
    case 1:
      spec.student_hidden = long_size(random, 1, limits.hidden);
      if (spec.teacher_hidden != 0) spec.teacher_hidden = long_size(random, 2, limits.hidden);
      break;
    default: set_vocab(spec, long_size(random, 1, limits.vocab));
  }
  return longer;
}

Recipe with_several_tiles(const Recipe& recipe, std::uint64_t seed, const SizeLimits& limits) {
  const Random random(seed, 0x74696c6573);
  Recipe larger = recipe;
  CaseSpec& spec = larger.spec;
  const Index left_small = random.below(0, 12);  // one of the three in a quarter of the recipes
  if (left_small != 0) spec.tokens = tiles(random, 1, limits.tokens);
  if (left_small != 1) set_vocab(spec, tiles(random, 2, limits.vocab));
  if (left_small != 2) {
    spec.student_hidden = tiles(random, 3, limits.hidden);
    if (spec.teacher_hidden != 0) spec.teacher_hidden = tiles(random, 4, limits.hidden);
  }
  return larger;
}

}  // namespace fljsd
