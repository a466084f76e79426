// SPDX-License-Identifier: Apache-2.0
// Random recipes. Chances are chosen so that every feature occurs in every hundred recipes, and most recipes
// have few features at once.
#include <algorithm>
#include <cmath>
#include <limits>

#include "verify/cases/random.h"
#include "verify/cases/recipe.h"

namespace fljsd {
namespace {

// Draws one after the other from a stream.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed, 0x7265636970650002) {}

  Index below(Index count) { return random_.below(next_++, count); }
  std::uint64_t word() { return random_.word(next_++); }
  double uniform() { return random_.uniform(next_++); }
  bool chance(int in, int of) { return below(of) < in; }
  template <class Value>
  Value one_of(std::initializer_list<Value> values) {
    return values.begin()[below(static_cast<Index>(values.size()))];
  }
  template <class Range>
  auto from(const Range& range) {
    return range[static_cast<std::size_t>(below(static_cast<Index>(std::size(range))))];
  }

 private:
  Random random_;
  Index next_ = 0;
};

// 1 .. max: half the time one of the awkward sizes, and small sizes more often than large ones.
Index draw_size(Draw& draw, Index max) {
  const std::span<const Index> awkward = awkward_sizes();
  const auto fitting = std::upper_bound(awkward.begin(), awkward.end(), max) - awkward.begin();
  if (draw.chance(1, 2)) return awkward[static_cast<std::size_t>(draw.below(fitting))];
  return 1 + draw.below(1 + draw.below(max));
}

double draw_beta(Draw& draw, const RecipeRange& range) {
  if (range.endpoints && draw.chance(1, 4)) return draw.one_of({0.0, 1.0});
  if (draw.chance(1, 2))
    return draw.one_of({0.5, 0.1, 0.9, 0.25, 0.75, 1e-3, 1 - 1e-3, 0x1p-20, 1 - 0x1p-20, 1.0 / 3});
  return 0x1p-53 + draw.uniform() * (1 - 0x1p-52);  // never 0 or 1
}

double draw_temperature(Draw& draw) {
  if (draw.chance(1, 2)) return 1;
  if (draw.chance(1, 2)) return draw.one_of({2.0, 0.5, 4.0, 3.0, 0.07, 1e-2, 100.0, 1.0 / 3});
  return 0.1 + 4 * draw.uniform();
}

Index elements(const CaseSpec& spec, TensorName tensor) {
  const Index teacher_hidden = spec.teacher_hidden != 0 ? spec.teacher_hidden : spec.student_hidden;
  switch (tensor) {
    case TensorName::student_input: return spec.tokens * spec.student_hidden;
    case TensorName::student_weight: return spec.vocab * spec.student_hidden;
    case TensorName::teacher_input: return spec.tokens * teacher_hidden;
    case TensorName::teacher_weight: return spec.vocab * teacher_hidden;
    case TensorName::student_bias:
    case TensorName::teacher_bias: return spec.vocab;
  }
  return 0;
}

Edit draw_edit(Draw& draw, const CaseSpec& spec, const RecipeRange& range) {
  Edit edit;
  edit.tensor = draw.from(tensor_names());
  edit.element = draw.below(std::max<Index>(1, elements(spec, edit.tensor)));
  edit.value = bf16_to_double(awkward_bf16(draw.word()));
  const bool bias = edit.tensor == TensorName::student_bias || edit.tensor == TensorName::teacher_bias;
  if (bias && draw.chance(1, 2)) edit.value = -std::numeric_limits<double>::infinity();
  const bool removes_entry = bias && edit.value == -std::numeric_limits<double>::infinity();
  if (!range.no_distribution && !std::isfinite(edit.value) && !removes_entry) edit.value = 0;
  return edit;
}

}  // namespace

std::uint16_t awkward_bf16(std::uint64_t seed) {
  Draw draw(seed);
  const auto sign = static_cast<std::uint16_t>(draw.below(2) << 15);
  const auto bits = [&](Index exponent, Index fraction) {
    return static_cast<std::uint16_t>(sign | exponent << 7 | fraction);
  };
  switch (draw.below(8)) {
    case 0: return bits(0, 0);                                                    // ±0
    case 1: return bits(0, draw.one_of<Index>({1, 2, 63, 64, 127}));              // subnormal
    case 2: return bits(1 + draw.below(254), 0);                                  // a power of two, any
    case 3: return bits(120 + draw.below(16), 0);                                 // ... near 1
    case 4: return bits(120 + draw.below(16), draw.one_of<Index>({1, 64, 127}));  // ties and all ones
    case 5: return bits(254, 127);                                                // the largest finite value
    case 6: return draw.chance(1, 2) ? bits(255, 0) : bits(255, 64);              // infinity, NaN
    default: return static_cast<std::uint16_t>(draw.below(1 << 16));
  }
}

Recipe random_recipe(std::uint64_t seed, const RecipeRange& range) {
  Draw draw(seed);
  Recipe recipe;
  CaseSpec& spec = recipe.spec;
  spec.family = range.families.empty() ? draw.from(families()).number : draw.from(range.families);
  spec.seed = static_cast<std::uint64_t>(draw.below(1000000));
  spec.tokens = draw.chance(1, 40) ? 0 : draw_size(draw, range.max_tokens);
  spec.student_hidden = draw_size(draw, range.max_hidden);
  if (draw.chance(1, 2)) spec.teacher_hidden = draw_size(draw, range.max_hidden);
  spec.vocab = draw_size(draw, range.max_vocab);
  spec.options.beta = draw_beta(draw, range);
  spec.options.temperature = draw_temperature(draw);
  if (draw.chance(1, 2)) spec.options.reduction = draw.one_of({Reduction::sum, Reduction::none});
  if (draw.chance(1, 4)) spec.options.valid_vocab = 1 + draw.below(spec.vocab);
  if (range.mixed_dtypes && draw.chance(1, 2)) {
    constexpr DType dtypes[] = {DType::bf16, DType::f16, DType::f32, DType::f64};
    spec.dtype = draw.from(dtypes);
    if (draw.chance(1, 2)) {
      for (const TensorName tensor : tensor_names()) {
        const DType dtype = draw.from(dtypes);
        if (dtype != spec.dtype && draw.chance(1, 2)) recipe.dtypes[tensor] = dtype;
      }
    }
  }
  if (draw.chance(1, 2)) recipe.biases = draw.one_of({Biases::both, Biases::student, Biases::teacher});
  if (draw.chance(1, 3)) {
    recipe.ignored_percent = draw.one_of({0, 10, 50, 90, 100});
    recipe.poisoned = draw.chance(1, 2);
    if (draw.chance(1, 8)) spec.options.ignore_index = draw.one_of<std::int64_t>({0, -1, 7});
  }
  if (draw.chance(1, 3))
    for (Index count = 1 + draw.below(3); count > 0; --count)
      recipe.edits.push_back(draw_edit(draw, spec, range));
  if (range.awkward_layout && draw.chance(1, 4)) {
    recipe.layout.row_padding = draw.one_of<Index>({0, 1, 3, 8});
    recipe.layout.misalignment = static_cast<std::size_t>(draw.one_of({0, 1, 2, 5, 16, 63}));
  }
  return recipe;
}

}  // namespace fljsd
