// SPDX-License-Identifier: Apache-2.0
// Every candidate of simpler() is smaller than its recipe in one of these measures and larger in none: each
// size, the number of edits, the plainness of each edit's value, of each option, dtype and layout, the seed,
// the family's number. All are natural numbers, so a descent ends.
#include <cmath>

#include "verify/cases/recipe.h"

namespace fljsd {
namespace {

// How plain a number is, lower first: the plainest, a few standard ones, everything else. `plainest` may be
// any number; the others are 0, 1 and infinities for edits, short binary fractions for options.
int rank(double value, double plainest, bool standard) {
  return value == plainest ? 0 : standard ? 1 : 2;
}
bool is_short(double value) {
  return value * 16 == std::floor(value * 16);
}

// Collects the variants of a recipe.
class Variants {
 public:
  explicit Variants(const Recipe& recipe) : recipe_(recipe) {}

  // The recipe changed by `change`.
  template <class Change>
  void add(const Change& change) {
    Recipe variant = recipe_;
    change(variant);
    Options& options = variant.spec.options;
    if (options.valid_vocab && *options.valid_vocab > variant.spec.vocab)
      options.valid_vocab = variant.spec.vocab;
    found_.push_back(std::move(variant));
  }

  // A size: the least, half, one less.
  template <class Member>
  void shrink_size(const Member& member, Index least) {
    const Index size = member(recipe_);
    Index last = -1;
    for (const Index smaller : {least, size / 2, size - 1}) {
      if (smaller < least || smaller >= size || smaller == last) continue;
      add([&](Recipe& r) { member(r) = smaller; });
      last = smaller;
    }
  }

  std::vector<Recipe> take() { return std::move(found_); }

 private:
  const Recipe& recipe_;
  std::vector<Recipe> found_;
};

void shrink_sizes(const Recipe& recipe, Variants& variants) {
  variants.shrink_size(
      [](auto& r) -> auto& { return r.spec.tokens; }, 1);
  variants.shrink_size(
      [](auto& r) -> auto& { return r.spec.vocab; }, 1);
  variants.shrink_size(
      [](auto& r) -> auto& { return r.spec.student_hidden; }, 1);
  if (recipe.spec.teacher_hidden != 0) {
    if (recipe.spec.teacher_hidden >= recipe.spec.student_hidden)
      variants.add([](Recipe& r) { r.spec.teacher_hidden = 0; });
    variants.shrink_size(
        [](auto& r) -> auto& { return r.spec.teacher_hidden; }, 1);
  }
}

void shrink_edits(const Recipe& recipe, Variants& variants) {
  if (recipe.edits.size() > 1) variants.add([](Recipe& r) { r.edits.clear(); });
  for (std::size_t i = 0; i < recipe.edits.size(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    variants.add([&](Recipe& r) { r.edits.erase(r.edits.begin() + at); });
    const double value = recipe.edits[i].value;
    const int now = rank(value, 0, value == 1 || std::isinf(value));
    for (const double plain : {0.0, 1.0})
      if (rank(plain, 0, true) < now) variants.add([&](Recipe& r) { r.edits[i].value = plain; });
    if (recipe.edits[i].element > 0) variants.add([&](Recipe& r) { r.edits[i].element = 0; });
  }
}

void shrink_options(const Recipe& recipe, Variants& variants) {
  const Options& options = recipe.spec.options;
  const double beta = options.beta, temperature = options.temperature;
  if (beta != 0.5) variants.add([](Recipe& r) { r.spec.options.beta = 0.5; });
  if (!is_short(beta)) {
    // One of 1/16 .. 15/16, so that an inner beta stays inside.
    variants.add(
        [&](Recipe& r) { r.spec.options.beta = std::min(std::max(std::round(beta * 16), 1.0), 15.0) / 16; });
  }
  if (temperature != 1) variants.add([](Recipe& r) { r.spec.options.temperature = 1; });
  if (!is_short(temperature))
    for (const double plain : {std::max(1.0, std::round(temperature)), 2.0, 0.5})
      variants.add([&](Recipe& r) { r.spec.options.temperature = plain; });
  if (options.reduction != Reduction::batchmean)
    variants.add([](Recipe& r) { r.spec.options.reduction = Reduction::batchmean; });
  if (options.valid_vocab) variants.add([](Recipe& r) { r.spec.options.valid_vocab.reset(); });
  if (options.ignore_index != -100) variants.add([](Recipe& r) { r.spec.options.ignore_index = -100; });
  if (recipe.ignored_percent) variants.add([](Recipe& r) { r.ignored_percent.reset(); });
  if (recipe.poisoned) variants.add([](Recipe& r) { r.poisoned = false; });
  if (recipe.biases != Biases::family) variants.add([](Recipe& r) { r.biases = Biases::family; });
  if (recipe.spec.strength) variants.add([](Recipe& r) { r.spec.strength.reset(); });
}

void shrink_storage(const Recipe& recipe, Variants& variants) {
  if (recipe.dtypes.size() > 1) variants.add([](Recipe& r) { r.dtypes.clear(); });
  for (const auto& [tensor, dtype] : recipe.dtypes) {
    const TensorName drop = tensor;
    variants.add([&](Recipe& r) { r.dtypes.erase(drop); });
  }
  if (recipe.spec.dtype != DType::bf16) variants.add([](Recipe& r) { r.spec.dtype = DType::bf16; });
  if (!recipe.layout.is_plain()) variants.add([](Recipe& r) { r.layout = {}; });
  if (recipe.layout.row_padding > 0) variants.add([](Recipe& r) { r.layout.row_padding = 0; });
  if (recipe.layout.misalignment > 0) variants.add([](Recipe& r) { r.layout.misalignment = 0; });
}

}  // namespace

std::vector<Recipe> simpler(const Recipe& recipe) {
  Variants variants(recipe);
  shrink_sizes(recipe, variants);
  shrink_edits(recipe, variants);
  shrink_options(recipe, variants);
  shrink_storage(recipe, variants);
  const std::uint64_t seed = recipe.spec.seed;
  if (seed > 0) variants.add([](Recipe& r) { r.spec.seed = 0; });
  if (seed > 1) variants.add([&](Recipe& r) { r.spec.seed = seed / 2; });
  // The plainest families: published and kaiming.
  for (const int family : {1, 2})
    if (family < recipe.spec.family) {
      variants.add([&](Recipe& r) {
        r.spec.family = family;
        r.spec.strength.reset();  // another family's parameter has another meaning
      });
    }
  return variants.take();
}

}  // namespace fljsd
