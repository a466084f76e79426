// SPDX-License-Identifier: Apache-2.0
#include "verify/audit/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include <fmt/format.h>

namespace fljsd {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: {
        const auto code = static_cast<unsigned char>(c);
        const bool control = (code < 0x20 && c != '\n' && c != '\t') || code == 0x7f;
        out += control ? "\uFFFD" : std::string(1, c);
      }
    }
  }
  return out;
}

// At most two decimals, none that are 0: pages hold thousands of coordinates.
std::string short_decimal(double number) {
  if (!std::isfinite(number)) throw std::logic_error("A coordinate that is not finite was to be drawn.");
  std::string text = fmt::format("{:.2f}", number);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

bool is_void(std::string_view tag) {
  constexpr std::array<std::string_view, 5> tags = {"br", "hr", "meta", "link", "col"};
  return std::find(tags.begin(), tags.end(), tag) != tags.end();
}

}  // namespace

Markup::Markup(std::string_view text) : markup_(escaped(text)) {}

Markup::Markup(std::initializer_list<Markup> parts) {
  for (const Markup& part : parts) markup_ += part.markup_;
}

Markup Markup::verbatim(std::string markup) {
  Markup result;
  result.markup_ = std::move(markup);
  return result;
}

Markup& Markup::operator+=(const Markup& other) {
  markup_ += other.markup_;
  return *this;
}

Value::Value(std::string_view text) : markup_(escaped(text)) {}

Value::Value(double number) : markup_(short_decimal(number)) {}

Markup element(std::string_view tag, const std::vector<Attribute>& attributes, const Markup& content) {
  std::string out = fmt::format("<{}", tag);
  for (const Attribute& attribute : attributes)
    out += fmt::format(" {}=\"{}\"", attribute.name, attribute.value.str());
  if (is_void(tag)) return Markup::verbatim(out + "/>");
  return Markup::verbatim(fmt::format("{}>{}</{}>", out, content.str(), tag));
}

std::string percent_of_width(double percent) {
  return short_decimal(percent) + '%';
}

Markup svg(double height, const Markup& title, const Markup& content) {
  Markup inside = element("title", {}, title);
  inside += content;
  return element("svg", {{"xmlns", "http://www.w3.org/2000/svg"}, {"role", "img"}, {"height", height}},
                 inside);
}

}  // namespace fljsd
