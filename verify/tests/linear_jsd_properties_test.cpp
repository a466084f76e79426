// SPDX-License-Identifier: Apache-2.0
// Every property of the catalogue, held against the double tier on random recipes. Which fault each convicts
// stands in the catalogue (Property::fault).
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cctype>
#include <cmath>

#include "verify/cases/recipe_gen.h"
#include "verify/properties/property.h"

namespace fljsd {

void PrintTo(const Property& property, std::ostream* out) {
  *out << property.name;
}

namespace {

class DoubleTier : public testing::TestWithParam<Property> {};

TEST_P(DoubleTier, HoldsOnRandomRecipes) {
  const Property& property = GetParam();
  const bool holds = rc::check(std::string(property.statement), [&] {
    const Recipe recipe = *any_recipe();
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    const PropertyOutcome outcome = property.check(make_case(recipe), double_tier(), seed);
    RC_PRE(outcome.applicable);
    if (!outcome.passed) RC_FAIL(outcome.text);
  });
  EXPECT_TRUE(holds);
}

std::string test_name(const testing::TestParamInfo<Property>& info) {
  std::string name;
  bool upper = true;
  for (const char c : info.param.name) {
    if (c != '-') name += upper ? static_cast<char>(std::toupper(c)) : c;
    upper = c == '-';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Properties, DoubleTier, testing::ValuesIn(properties().begin(), properties().end()),
                         test_name);

// Catches a property that speaks about nothing: each must apply to many recipes and compare numbers there.
TEST(Properties, EachAppliesToManyRecipes) {
  RecipeRange range;
  range.max_tokens = 4;
  range.max_hidden = 8;
  range.max_vocab = 9;
  for (const Property& property : properties()) {
    int applied = 0;
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      const PropertyOutcome outcome =
          property.check(make_case(random_recipe(seed, range)), double_tier(), seed);
      applied += outcome.applicable;
      EXPECT_TRUE(outcome.applicable || !outcome.text.empty()) << "no reason is given";
    }
    EXPECT_GE(applied, 6) << property.name;
  }
}

// Catches a bitwise property that quietly compares within a bound: one bit of one gradient element, which
// every bound allows, must be noticed by properties whose other case is plain arithmetic.
TEST(Properties, BitwiseMeansBitwise) {
  Implementation late_bit = double_tier();
  late_bit.compute = [calls = 0](const Case& c) mutable {
    Result result = double_tier().compute(c);
    if (++calls > 1) result.student_weight_grad *= 1 + 0x1p-52;
    return result;
  };
  const Case c = make_case(parse_recipe("family=kaiming tokens=3 hidden=5 vocab=7 seed=1"));
  EXPECT_FALSE(find_property("rerun").check(c, late_bit, 0).passed);
  late_bit.deterministic = false;
  EXPECT_TRUE(find_property("rerun").check(c, late_bit, 0).passed);
}

// Catches a lookup that answers for a name that does not exist.
TEST(Properties, AreFoundByName) {
  EXPECT_EQ(find_property("range").name, "range");
  EXPECT_THROW(find_property("no-such-property"), std::invalid_argument);
}

}  // namespace
}  // namespace fljsd
