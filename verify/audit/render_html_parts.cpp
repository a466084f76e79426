// SPDX-License-Identifier: Apache-2.0
#include "verify/audit/render_html_parts.h"

#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "verify/report/number.h"

namespace fljsd::html {
namespace {

// Hollow, so that several at one place can be told apart; about 9 pixels wide around (0, 0).
constexpr std::array shapes = {
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0",  // circle
    "M-4 -4H4V4H-4Z",                                // square
    "M0 -5.5L5.5 0L0 5.5L-5.5 0Z",                   // diamond
    "M0 -5L5 4H-5Z",                                 // triangle
    "M0 5L5 -4H-5Z",                                 // triangle, point down
    "M-5 0H5M0 -5V5",                                // plus
    "M-4 -4L4 4M-4 4L4 -4",                          // cross
    "M-4.5 -2.5H4.5M-4.5 2.5H4.5M0 -5V5",            // double dagger
};

}  // namespace

std::string typeset(std::string text) {
  for (const auto& [plain, printed] : {std::pair{"-inf", "−∞"}, std::pair{" * ", " · "}}) {
    for (std::size_t at = text.find(plain); at != text.npos; at = text.find(plain))
      text.replace(at, std::strlen(plain), printed);
  }
  return text;
}

std::string quantity_words(const std::string& quantity) {
  if (quantity == "token_loss") return "loss of a token";
  if (quantity == "student_input_grad") return "input gradient";
  if (quantity == "student_weight_grad") return "weight gradient";
  if (quantity == "student_bias_grad") return "bias gradient";
  return quantity;
}

Markup section(const char* id, const Markup& heading, const Markup& content) {
  return element("section", {{"id", id}}, {element("h2", {}, heading), content});
}

Markup paragraph(const Markup& content) {
  return element("p", {}, content);
}

Markup note(const Markup& content) {
  return element("p", {{"class", "note"}}, content);
}

Table::Table(Markup caption, std::vector<Cell> headings) : caption_(std::move(caption)) {
  for (const Cell& heading : headings)
    head_ += element("th", {{"scope", "col"}, {"class", heading.classes}}, heading.content);
}

void Table::add(std::vector<Cell> row) {
  Markup cells;
  for (std::size_t c = 0; c < row.size(); ++c) {
    const Value classes(row[c].classes);
    cells += c == 0 ? element("th", {{"scope", "row"}, {"class", classes}}, row[c].content)
                    : element("td", {{"class", classes}}, row[c].content);
  }
  rows_ += element("tr", {}, cells);
}

Markup Table::markup(const char* classes) const {
  // The container can be scrolled with the keyboard, which needs a focus and a name.
  return element("div", {{"class", "scroll"}, {"tabindex", 0}, {"role", "group"}},
                 element("table", {{"class", classes}},
                         {element("caption", {}, element("span", {{"class", "text"}}, caption_)),
                          element("thead", {}, element("tr", {}, head_)), element("tbody", {}, rows_)}));
}

std::string error_text(const std::optional<double>& error) {
  if (!error) return "–";
  if (!std::isfinite(*error)) return "NaN or ∞";
  return short_number(*error, 2);
}

Cell error_cell(const std::optional<double>& error) {
  if (!error) return {"–", "dim"};
  if (!std::isfinite(*error)) return {"NaN or ∞", "bad"};
  return {error_text(error), ""};
}

const char* css(AccuracyClass accuracy_class) {
  switch (accuracy_class) {
    case AccuracyClass::float64: return "f64";
    case AccuracyClass::fp32_logits: return "fp32";
    case AccuracyClass::bf16_logits: return "bf16";
  }
  return "";
}

Markup marker_definitions() {
  Markup symbols;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    symbols += element("path", {{"id", fmt::format("m{}", i)}, {"d", shapes[i]}});
  return element("svg",
                 {{"xmlns", "http://www.w3.org/2000/svg"},
                  {"class", "definitions"},
                  {"aria-hidden", "true"},
                  {"width", 0},
                  {"height", 0}},
                 element("defs", {}, symbols));
}

Markup marker(std::size_t candidate, AccuracyClass accuracy_class, double place, double y) {
  return element("use", {{"href", fmt::format("#m{}", candidate % shapes.size())},
                         {"x", percent_of_width(place)},
                         {"y", y},
                         {"class", fmt::format("marker {}", css(accuracy_class))}});
}

Markup key(Markup mark) {
  return element("svg",
                 {{"xmlns", "http://www.w3.org/2000/svg"},
                  {"class", "key"},
                  {"aria-hidden", "true"},
                  {"width", 14},
                  {"height", 14}},
                 std::move(mark));
}

Markup marker_key(std::size_t candidate, AccuracyClass accuracy_class) {
  return key(element("use", {{"href", fmt::format("#m{}", candidate % shapes.size())},
                             {"x", 7},
                             {"y", 7},
                             {"class", fmt::format("marker {}", css(accuracy_class))}}));
}

Markup candidate_label(std::size_t candidate, const CandidateReport& report) {
  return element("span", {{"class", "candidate"}},
                 {marker_key(candidate, report.verdict.accuracy_class), " ", report.name});
}

Markup verdict_label(const CandidateReport& report) {
  if (report.pass() && !report.no_answer.empty()) return element("span", {{"class", "verdict"}}, "no answer");
  return verdict_label(report.pass());
}

Markup verdict_label(bool pass) {
  return element("span", {{"class", pass ? "verdict good" : "verdict bad"}}, pass ? "✓ kept" : "✕ BROKEN");
}

Markup axis_lines(const LogAxis& axis, double height) {
  Markup lines;
  for (const int exponent : axis.ticks(24)) {
    const std::string x = percent_of_width(axis.place(std::pow(10.0, exponent)));
    lines += element("line", {{"class", "grid"}, {"x1", x}, {"x2", x}, {"y1", 0}, {"y2", height}});
  }
  return lines;
}

Markup axis_labels(const LogAxis& axis, const Markup& unit) {
  constexpr double height = 20;
  const auto label = [](double place, const char* anchor, const Markup& text) {
    return element("text", {{"x", percent_of_width(place)}, {"y", 14}, {"text-anchor", anchor}}, text);
  };
  Markup labels = label(LogAxis::zero_place, "middle", "0");
  for (const int exponent : axis.ticks(7)) {
    const double place = axis.place(std::pow(10.0, exponent));
    // The labels of the gutters need room for themselves, on a phone too.
    if (place < 7.5 || place > 87.5) continue;
    labels += label(place, "middle", power_of_ten(exponent));
  }
  labels += label(LogAxis::not_finite_place, "middle", "NaN");
  return drawing_row(element("span", {{"class", "unit"}}, unit), {},
                     element("svg",
                             {{"xmlns", "http://www.w3.org/2000/svg"},
                              {"class", "labels"},
                              {"aria-hidden", "true"},
                              {"height", height}},
                             labels));
}

Markup line_at(const LogAxis& axis, const std::optional<double>& value, double top, double bottom,
               const std::string& classes) {
  if (!value || !axis.on_scale(*value)) return {};
  const std::string x = percent_of_width(axis.place(*value));
  return element("line", {{"class", classes}, {"x1", x}, {"x2", x}, {"y1", top}, {"y2", bottom}});
}

Markup drawing_row(const Markup& name, const Markup& below, const Markup& drawing) {
  Markup label = element("span", {{"class", "name"}}, name);
  if (!below.empty()) label += element("span", {{"class", "below"}}, below);
  return element("div", {{"class", "row"}}, {element("div", {{"class", "label"}}, label), drawing});
}

}  // namespace fljsd::html
