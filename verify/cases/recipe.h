// SPDX-License-Identifier: Apache-2.0
// A recipe: everything that determines a test case, in one line of text.
//
//   family=kaiming tokens=3 hidden=5 vocab=17 seed=42 beta=0.1 ignored=50 student_weight[7]=nan
//
// Searches make, mutate and shrink recipes, never tensors: a recipe is small, prints as one pasteable line,
// and gives the same case on every machine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/cases/families.h"
#include "verify/cases/layout.h"

namespace fljsd {

enum class TensorName {
  student_input,
  student_weight,
  teacher_input,
  teacher_weight,
  student_bias,
  teacher_bias,
};
const char* name(TensorName tensor);
std::span<const TensorName> tensor_names();

// One element that is overwritten after the family has made the case.
struct Edit {
  TensorName tensor = TensorName::student_input;
  // In row-major order, taken modulo the number of elements, so that an edit survives when sizes shrink. An
  // edit of a tensor that is absent or empty does nothing.
  Index element = 0;
  double value = 0;  // rounded once to the tensor's dtype
};

// Which biases the case has.
enum class Biases { family, both, student, teacher };  // family: those that the family has by itself
const char* name(Biases biases);

struct Recipe {
  // Family, sizes, seed, strength, dtype and options. with_bias and token_rows are not used: `biases` takes
  // the place of the first, and a recipe always is the whole case.
  CaseSpec spec;
  // Tensors in another dtype than spec.dtype: each is what the family gives in its dtype, so relations
  // between student and teacher that a family promises hold up to the rounding to the coarser one.
  std::map<TensorName, DType> dtypes;
  Biases biases = Biases::family;
  // Labels that ignore each token with this probability, in percent. Absent: the family's labels, mostly
  // none.
  std::optional<int> ignored_percent;
  bool poisoned = false;    // fills the inputs of ignored tokens with NaN
  std::vector<Edit> edits;  // applied in order, after everything else
  Layout layout;            // where the matrices lie in memory; the case's values do not depend on it
};

// The line of text: keys that have their default value are left out, numbers read back as the same bits.
std::string to_text(const Recipe& recipe);

// The inverse. Keys in any order; the family by name or number. Throws InvalidProblem, one sentence, for text
// that is not a recipe.
Recipe parse_recipe(std::string_view text);

// Makes the case, with the line of text in its provenance as "recipe". Throws InvalidProblem as
// make_case(CaseSpec) and validate() do.
Case make_case(const Recipe& recipe);

// What random_recipe() draws from.
struct RecipeRange {
  Index max_tokens = 16;
  Index max_hidden = 40;
  Index max_vocab = 70;
  std::vector<int> families;    // empty: all
  bool endpoints = true;        // beta = 0 and 1
  bool mixed_dtypes = true;     // else bf16 throughout
  bool no_distribution = true;  // edits with NaN and infinities other than a bias of −inf
  bool awkward_layout = true;   // padded rows, unaligned data
};

// A recipe that is a pure function of the arguments. Sizes lean to 1, primes and tile sizes ± 1, options and
// edits to special values; every feature occurs often.
Recipe random_recipe(std::uint64_t seed, const RecipeRange& range = {});

// A bf16 bit pattern with a taste for trouble: ±0, subnormals, powers of two, ties of a product's rounding,
// the largest finite value, infinities and NaN, and all others.
std::uint16_t awkward_bf16(std::uint64_t seed);

// Recipes that are one step simpler, the most drastic first: smaller sizes, then fewer and plainer edits,
// then plain options, dtypes and layout, then the plainest family. A search for a minimal counterexample
// tries them in order, moves to the first that still fails, and starts over; every step makes the recipe
// smaller in a well-founded order, so this ends.
std::vector<Recipe> simpler(const Recipe& recipe);

}  // namespace fljsd
