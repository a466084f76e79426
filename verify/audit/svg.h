// SPDX-License-Identifier: Apache-2.0
// Markup that is well formed by construction: text is escaped where it enters, elements are closed, and a
// coordinate that is not finite cannot be written.
//
// What comes out is XHTML as well as HTML5, so that an XML parser can check it.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace fljsd {

// A piece of markup. Text converts to it by being escaped.
class Markup {
 public:
  Markup() = default;
  Markup(std::string_view text);  // & < > " ' as entities; control characters, which XML lacks, as U+FFFD
  Markup(const std::string& text) : Markup(std::string_view(text)) {}
  Markup(const char* text) : Markup(std::string_view(text)) {}
  Markup(std::initializer_list<Markup> parts);

  // Markup as it is: for a style sheet that this project wrote itself.
  static Markup verbatim(std::string markup);

  Markup& operator+=(const Markup& other);
  friend Markup operator+(Markup a, const Markup& b) { return a += b; }
  bool empty() const { return markup_.empty(); }
  const std::string& str() const { return markup_; }

 private:
  std::string markup_;
};

// A value of an attribute: text, which is escaped, or a number with at most two decimals. Throws
// std::logic_error for a number that is not finite.
class Value {
 public:
  Value(std::string_view text);
  Value(const std::string& text) : Value(std::string_view(text)) {}
  Value(const char* text) : Value(std::string_view(text)) {}
  Value(double number);
  Value(int number) : Value(static_cast<double>(number)) {}
  const std::string& str() const { return markup_; }

 private:
  std::string markup_;
};

struct Attribute {
  std::string_view name;
  Value value;
};

// <tag name="value" …>content</tag>; elements that are always empty in HTML are closed in themselves.
Markup element(std::string_view tag, const std::vector<Attribute>& attributes, const Markup& content = {});

// 12.5 as "12.5%". Throws std::logic_error for a number that is not finite.
std::string percent_of_width(double percent);

// An SVG as wide as its container and `height` pixels high. Abscissae inside are percentages, so it needs no
// script to fit a phone and its text keeps its size. `title` is what a screen reader says about it.
Markup svg(double height, const Markup& title, const Markup& content);

}  // namespace fljsd
