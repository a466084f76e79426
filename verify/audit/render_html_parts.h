// SPDX-License-Identifier: Apache-2.0
// What the sections of an audit's page have in common: tables, labels, markers, and numbers as words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/audit/report.h"
#include "verify/audit/svg.h"
#include "verify/audit/svg_axis.h"

namespace fljsd::html {

// A sentence of the summary, which a terminal must be able to show, with the signs that a page has.
std::string typeset(std::string text);
// "student_input_grad" as "input gradient".
std::string quantity_words(const std::string& quantity);

// A section with an anchor, a heading and what follows it.
Markup section(const char* id, const Markup& heading, const Markup& content);
Markup paragraph(const Markup& content);
Markup note(const Markup& content);  // in small print

// A cell of a table. `classes` are names from the style sheet.
struct Cell {
  Markup content;
  std::string classes;
};

// A table in a container of its own, which scrolls where the page is narrower. The first cell of each row is
// its heading.
class Table {
 public:
  Table(Markup caption, std::vector<Cell> headings);
  void add(std::vector<Cell> row);
  Markup markup(const char* classes = "") const;

 private:
  Markup caption_, head_, rows_;
};

// A number of an error: two digits, "none" where it is absent, "NaN or ∞" where it is not finite.
std::string error_text(const std::optional<double>& error);
// A cell with it; `mark` names what it is measured against. Errors that are not finite are marked as broken.
Cell error_cell(const std::optional<double>& error);

// The style sheet's name for an accuracy class: its colour.
const char* css(AccuracyClass accuracy_class);

// The shape that stands for a candidate everywhere on the page; shapes repeat after eight.
Markup marker_definitions();
Markup marker(std::size_t candidate, AccuracyClass accuracy_class, double place, double y);
// A small drawing in front of a name, 14 pixels wide and high, around `mark`.
Markup key(Markup mark);
// The marker as such a drawing.
Markup marker_key(std::size_t candidate, AccuracyClass accuracy_class);
// Marker and name.
Markup candidate_label(std::size_t candidate, const CandidateReport& report);

// "✓ kept", "✕ BROKEN"
Markup verdict_label(bool pass);
// The same, or that there was no answer to judge.
Markup verdict_label(const CandidateReport& report);

// The lines of an axis behind a drawing that is `height` high, and a row of labels for below or above it.
Markup axis_lines(const LogAxis& axis, double height);
Markup axis_labels(const LogAxis& axis, const Markup& unit);
// A vertical line at a value; nothing for a value that is not positive and finite or not on the scale.
Markup line_at(const LogAxis& axis, const std::optional<double>& value, double top, double bottom,
               const std::string& classes);

// One row of a drawing: a name, a note below it, and an SVG. Rows stand under each other on one axis.
Markup drawing_row(const Markup& name, const Markup& below, const Markup& drawing);

}  // namespace fljsd::html
