// SPDX-License-Identifier: Apache-2.0
// Tables, numbers, bars and suggestions: what reports for people are made of.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include <nlohmann/json.hpp>

#include "verify/report/bar.h"
#include "verify/report/number.h"
#include "verify/report/suggest.h"
#include "verify/report/table.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

bool same(double a, double b) {
  return a == b ? std::signbit(a) == std::signbit(b) : std::isnan(a) && std::isnan(b);
}

// Fault: digits lost between a report and its reader.
RC_GTEST_PROP(Number, JsonAndHexFloatsReadBackExactly, (std::uint64_t bits)) {
  const double x = std::bit_cast<double>(bits);
  const auto parsed = nlohmann::ordered_json::parse(json_number(x).dump());
  RC_ASSERT(same(number_from_json(parsed), x));
  RC_ASSERT(same(std::strtod(hex_float(x).c_str(), nullptr), x));
}

// Fault: NaN or infinity as bare words, which JSON does not have.
TEST(Number, WhatIsNotFiniteIsAString) {
  EXPECT_EQ(json_number(nan).dump(), "\"nan\"");
  EXPECT_EQ(json_number(infinity).dump(), "\"inf\"");
  EXPECT_EQ(json_number(-infinity).dump(), "\"-inf\"");
  EXPECT_THROW(number_from_json("1.5"), std::invalid_argument);
}

// Fault: numbers that burst their column or are off by more than their last digit.
RC_GTEST_PROP(Number, ShortNumbersAreShortAndNear, ()) {
  const double x = *rc::gen::map(rc::gen::pair(rc::gen::inRange(-99999, 99999), rc::gen::inRange(-12, 12)),
                                 [](auto p) { return p.first * std::pow(10.0, p.second); });
  for (const int digits : {2, 3}) {
    const std::string text = short_number(std::abs(x), digits);
    RC_ASSERT(text.size() <=
              static_cast<std::size_t>(digits) + 4 + (std::abs(x) > 1e9 || std::abs(x) < 1e-9));
    // Two digits leave at most half a unit of the second: 5 %.
    RC_ASSERT(std::abs(std::stod(text) - std::abs(x)) <= 0.05 * std::abs(x));
  }
}

TEST(Number, ShortForms) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(1.37), "1.37");
  EXPECT_EQ(short_number(303.2), "303");
  EXPECT_EQ(short_number(1.44e-5), "1.4e-5");
  EXPECT_EQ(short_number(nan), "nan");
  EXPECT_EQ(percent(1.37), "137 %");
  EXPECT_EQ(percent(0.0323), "3.2 %");
  EXPECT_EQ(byte_count(2.1e9), "2.1 GB");
  EXPECT_EQ(duration(754), "12 min 34 s");
}

// Fault: columns that do not line up, or spaces at the end of a line.
TEST(Table, ColumnsLineUp) {
  Table table({"name", "two\nlines", "left"}, {2});
  table.add({"a", "1.5", "x"});
  table.add({"longer", "22", ""});
  EXPECT_EQ(table.text(2, 80),
            "            two\n"
            "  name    lines  left\n"
            "  a         1.5  x\n"
            "  longer     22\n");
  // Closer together where there is no room.
  EXPECT_EQ(table.text(0, 17).substr(0, 10), "         t");
  EXPECT_THROW(table.add({"too few"}), std::logic_error);
}

// Fault: text wider than the terminal.
TEST(Terminal, WrappingKeepsWordsAndWidth) {
  EXPECT_EQ(wrapped("aaa bb c dddd", 6, 2), "aaa bb\n  c dddd");
  EXPECT_EQ(wrapped("unbreakable", 4), "unbreakable");
  EXPECT_EQ(display_width("a…b"), 3);
}

// Fault: bars that hide small values, or that fail on NaN.
TEST(Bar, LengthsFollowTheLogarithm) {
  const LogScale scale(std::vector<double>{1e-3, 1e1, 0, nan}, 10);  // decades -3 .. 2
  EXPECT_EQ(scale.bar(0), "");
  EXPECT_EQ(scale.bar(1e-3).empty(), true);
  EXPECT_LT(scale.bar(1e-2).size(), scale.bar(1).size());
  EXPECT_EQ(scale.bar(nan).size(), scale.bar(infinity).size());
  EXPECT_LE(scale.bar(10).size(), scale.bar(infinity).size());
}

// Fault: a suggestion that is further away than another name, or none for a plain typo.
TEST(Suggest, NearestName) {
  const std::vector<std::string> names = {"audit", "gen", "loss", "check"};
  EXPECT_EQ(nearest_name("adit", names), "audit");
  EXPECT_EQ(nearest_name("auidt", names), "audit");
  EXPECT_EQ(nearest_name("chek", names), "check");
  EXPECT_EQ(nearest_name("au", names), "audit");
  EXPECT_EQ(nearest_name("frobnicate", names), std::nullopt);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

}  // namespace
}  // namespace fljsd
