// SPDX-License-Identifier: Apache-2.0
#include "verify/cases/recipe.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "verify/cases/packed.h"
#include "verify/cases/recipe_gen.h"

namespace fljsd {
namespace {

// The bytes of all tensors, the labels and the options: what makes two cases the same.
std::string fingerprint(const Case& c) {
  std::string bytes;
  const auto add = [&](const Tensor& tensor) {
    bytes += name(tensor.dtype);
    for (const Index size : tensor.shape) bytes += std::to_string(size) + ",";
    bytes.append(reinterpret_cast<const char*>(tensor.data.get()), tensor.bytes());
  };
  for (const Tensor* tensor : {&c.student_input, &c.student_weight, &c.teacher_input, &c.teacher_weight})
    add(*tensor);
  for (const auto* bias : {&c.student_bias, &c.teacher_bias}) {
    bytes += bias->has_value() ? "bias" : "none";
    if (*bias) add(**bias);
  }
  if (c.labels)
    for (const std::int64_t label : *c.labels) bytes += std::to_string(label) + ",";
  const Options& o = c.options;
  for (const double x : {o.beta, o.temperature}) bytes.append(reinterpret_cast<const char*>(&x), sizeof x);
  return bytes + name(o.reduction) + std::to_string(o.ignore_index) + "," +
         std::to_string(o.valid_vocab.value_or(-1));
}

std::string refusal(const std::string& text) {
  try {
    make_case(parse_recipe(text));
  } catch (const InvalidProblem& error) {
    return error.what();
  }
  return "accepted";
}

// Catches a field that to_text forgets or parse_recipe reads into another one.
RC_GTEST_PROP(Recipe, IsItsLineOfText, ()) {
  const Recipe recipe = *any_recipe();
  const Recipe parsed = parse_recipe(to_text(recipe));
  RC_ASSERT(to_text(parsed) == to_text(recipe));
  RC_ASSERT(fingerprint(make_case(parsed)) == fingerprint(make_case(recipe)));
  RC_ASSERT(parsed.layout.row_padding == recipe.layout.row_padding);
  RC_ASSERT(parsed.layout.misalignment == recipe.layout.misalignment);
}

// Catches a shrink that leads to a recipe that cannot be made, or in a circle: a chain of first candidates,
// as long as the longest descent, must end.
RC_GTEST_PROP(Recipe, ShrinkingEnds, ()) {
  Recipe recipe = *any_recipe();
  int steps = 0;
  for (std::vector<Recipe> next = simpler(recipe); !next.empty(); next = simpler(recipe)) {
    RC_ASSERT(++steps < 1000);
    const auto pick = static_cast<std::size_t>(*rc::gen::arbitrary<std::uint16_t>()) % next.size();
    recipe = next[pick];
    make_case(recipe);
  }
  RC_ASSERT(recipe.spec.tokens <= 1);
  RC_ASSERT(recipe.spec.vocab == 1);
  RC_ASSERT(recipe.spec.student_hidden == 1);
  RC_ASSERT(recipe.edits.empty());
  RC_ASSERT(recipe.spec.family == 1);
}

// Catches a generator that never reaches a feature: every one must turn up in a few thousand recipes.
TEST(Recipe, RandomOnesReachEverything) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    const Recipe r = random_recipe(seed);
    const Options& o = r.spec.options;
    seen.insert("family " + std::to_string(r.spec.family));
    seen.insert("dtype " + std::string(name(r.spec.dtype)));
    seen.insert("bias " + std::string(name(r.biases)));
    seen.insert("reduction " + std::string(name(o.reduction)));
    for (const double beta : {0.0, 1.0, 0.5, 1e-3})
      if (o.beta == beta) seen.insert("beta " + std::to_string(beta));
    for (const Index size : {Index{0}, Index{1}, Index{7}, Index{8}, Index{9}})
      if (r.spec.tokens == size) seen.insert("tokens " + std::to_string(size));
    for (const Index size : {Index{1}, Index{2}, Index{31}, Index{32}, Index{33}, Index{65}})
      if (r.spec.vocab == size) seen.insert("vocab " + std::to_string(size));
    if (o.temperature != 1) seen.insert("temperature");
    if (o.valid_vocab && *o.valid_vocab < r.spec.vocab) seen.insert("valid_vocab");
    if (r.spec.teacher_hidden != 0 && r.spec.teacher_hidden != r.spec.student_hidden) seen.insert("hidden");
    if (!r.dtypes.empty()) seen.insert("mixed dtypes");
    if (r.poisoned && r.ignored_percent == 50) seen.insert("poisoned");
    if (r.ignored_percent == 100) seen.insert("all ignored");
    if (r.layout.row_padding > 0 && r.layout.misalignment % 2 == 1) seen.insert("layout");
    for (const Edit& edit : r.edits) {
      seen.insert("edit of " + std::string(name(edit.tensor)));
      if (std::isnan(edit.value)) seen.insert("NaN");
      if (std::isinf(edit.value)) seen.insert("infinity");
      if (edit.value != 0 && std::abs(edit.value) < 0x1p-126) seen.insert("subnormal");
    }
    EXPECT_EQ(to_text(r), to_text(random_recipe(seed))) << "not a function of the seed";
  }
  EXPECT_EQ(seen.size(), 16u + 4 + 4 + 3 + 4 + 5 + 6 + 7 + 6 + 3) << rc::toString(seen);
}

// Catches NaN that a range without it lets through.
TEST(Recipe, RangesAreRespected) {
  RecipeRange range;
  range.max_tokens = 3;
  range.max_hidden = 5;
  range.max_vocab = 7;
  range.families = {2, 4};
  range.endpoints = range.mixed_dtypes = range.no_distribution = range.awkward_layout = false;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const Recipe r = random_recipe(seed, range);
    EXPECT_LE(r.spec.tokens, 3);
    EXPECT_LE(r.spec.student_hidden, 5);
    EXPECT_LE(r.spec.teacher_hidden, 5);
    EXPECT_LE(r.spec.vocab, 7);
    EXPECT_TRUE(r.spec.family == 2 || r.spec.family == 4);
    EXPECT_TRUE(r.spec.options.beta > 0 && r.spec.options.beta < 1);
    EXPECT_EQ(r.spec.dtype, DType::bf16);
    EXPECT_TRUE(r.dtypes.empty() && r.layout.is_plain());
    for (const Edit& edit : r.edits) {
      const bool bias = edit.tensor == TensorName::student_bias || edit.tensor == TensorName::teacher_bias;
      EXPECT_TRUE(std::isfinite(edit.value) ||
                  (bias && edit.value == -std::numeric_limits<double>::infinity()));
    }
  }
}

// Catches options that are read but not applied.
TEST(Recipe, MakesWhatItSays) {
  const Case c = make_case(parse_recipe(
      "family=kaiming tokens=3 hidden=5 teacher_hidden=4 vocab=17 seed=42 dtype=f32 teacher_weight=f16 "
      "bias=student "
      "beta=0.1 temperature=2 reduction=sum ignore_index=7 valid_vocab=16 ignored=100 poisoned=1 "
      "student_bias[18]=-inf student_weight[2]=0.1"));
  EXPECT_EQ(c.student_input.shape, (std::vector<Index>{3, 5}));
  EXPECT_EQ(c.teacher_weight.shape, (std::vector<Index>{17, 4}));
  EXPECT_EQ(c.student_weight.dtype, DType::f32);
  EXPECT_EQ(c.teacher_weight.dtype, DType::f16);
  ASSERT_TRUE(c.student_bias);
  EXPECT_FALSE(c.teacher_bias);
  EXPECT_EQ(c.student_bias->vector()(1), -std::numeric_limits<double>::infinity());  // 18 modulo 17
  EXPECT_EQ(c.student_weight.matrix()(0, 2), static_cast<double>(0.1f));
  EXPECT_EQ(c.options.beta, 0.1);
  EXPECT_EQ(c.options.temperature, 2);
  EXPECT_EQ(c.options.reduction, Reduction::sum);
  EXPECT_EQ(c.options.valid_vocab, 16);
  EXPECT_EQ(c.labels, (std::vector<std::int64_t>{7, 7, 7}));
  EXPECT_TRUE(std::isnan(c.student_input.matrix()(2, 4)));
  EXPECT_TRUE(std::isnan(c.teacher_input.matrix()(0, 0)));
  EXPECT_EQ(c.provenance.at("recipe").substr(0, 14), "family=kaiming");
}

// Catches text that is half understood: each mistake is refused in a sentence that names it.
TEST(Recipe, RefusesWhatIsNotARecipe) {
  EXPECT_EQ(refusal("tokens"), "recipe: 'tokens' is not of the form key=value.");
  EXPECT_EQ(refusal("tokens=3x"), "recipe: tokens is '3x', but it must be an integer in [0, 1099511627776].");
  EXPECT_EQ(refusal("beta=half"), "recipe: beta is 'half', but it must be a number, inf, -inf or nan.");
  EXPECT_EQ(refusal("dtype=f8"), "recipe: dtype is 'f8', but it must be bf16, f16, f32 or f64.");
  EXPECT_EQ(refusal("weight[0]=1").substr(0, 52), "recipe: there is no tensor 'weight' to edit; it must");
  EXPECT_EQ(refusal("student_weight[x]=1").substr(0, 40), "recipe: the element of an edit is 'x', b");
  EXPECT_EQ(refusal("size=3").substr(0, 34), "recipe: 'size' is not a key; keys ");
  EXPECT_EQ(refusal("ignored=101"), "recipe: ignored is '101', but it must be an integer in [0, 100].");
  EXPECT_EQ(refusal("misalignment=64"),
            "recipe: misalignment is '64', but it must be an integer in [0, 63].");
  EXPECT_EQ(refusal("beta=2"), "beta is 2, but it must be in [0, 1].");
  EXPECT_EQ(refusal(""), "accepted");  // every key has a default
}

// Catches a layout that changes values, and padding that is not NaN.
RC_GTEST_PROP(Layout, KeepsValues, ()) {
  RecipeRange range;
  range.no_distribution = false;
  const Case c = make_case(*any_recipe(range));
  const Layout layout{*rc::gen::element<Index>(0, 1, 5), *rc::gen::element<std::size_t>(0, 1, 2, 63)};
  const LaidOutCase laid_out(c, layout);
  const auto same_value = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  const auto same = [&](const MatrixView& a, const MatrixView& b) {
    RC_ASSERT(b.row_stride == a.cols + layout.row_padding);
    RC_ASSERT(reinterpret_cast<std::uintptr_t>(b.data) % 64 == layout.misalignment);
    for (Index r = 0; r < a.rows; ++r) {
      for (Index col = 0; col < a.cols; ++col) RC_ASSERT(same_value(a(r, col), b(r, col)));
      for (Index col = a.cols; r + 1 < a.rows && col < b.row_stride; ++col) RC_ASSERT(std::isnan(b(r, col)));
    }
  };
  const Problem a = c.problem(), &b = laid_out.problem();
  same(a.student_input, b.student_input);
  same(a.student_weight, b.student_weight);
  same(a.teacher_input, b.teacher_input);
  same(a.teacher_weight, b.teacher_weight);
  // And back: what is sent to a process that lays it out again.
  RC_ASSERT(layout_of(b).row_padding == layout.row_padding);
  RC_ASSERT(layout_of(b).misalignment == layout.misalignment);
  RC_ASSERT(fingerprint(packed(b, c.options)) == fingerprint(c));
  if (a.student_bias)
    for (Index v = 0; v < a.student_bias->size; ++v)
      RC_ASSERT(same_value((*a.student_bias)(v), (*b.student_bias)(v)));
}

}  // namespace
}  // namespace fljsd
