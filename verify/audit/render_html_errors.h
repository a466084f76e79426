// SPDX-License-Identifier: Apache-2.0
// Drawings of errors beside what is allowed: one row for each workload or quantity, in it one lane for each
// accuracy class.
#pragma once

#include <string>
#include <vector>

#include "verify/audit/render_html_parts.h"

namespace fljsd::html {

// A quantity in the measure that the drawings show.
struct Quantity {
  const char* name;     // as in VerdictRow
  const char* title;    // "Gradient of the student input"
  const char* measure;  // as in VerdictRow
  const char* unit;     // "relative L2 error"
};
const std::vector<Quantity>& quantities();

// What one row of a drawing shows.
struct ErrorRow {
  Markup name, below;
  std::vector<AccuracyClass> classes;    // of the candidates
  std::vector<std::string> candidates;   // their names
  std::vector<const VerdictRow*> found;  // what was found about each; null where there is nothing
};
ErrorRow error_row(const Markup& name, const WorkloadReport& workload, const Quantity& quantity);

// The largest test ratio in the row, infinite for errors that are; below 0 for a row without anything.
double hardest(const ErrorRow& row);

// Rows on one axis, with labels above and below.
Markup error_drawing(const std::vector<ErrorRow>& rows, const Markup& unit);

// What markers, bars and lines mean.
Markup error_legend(const std::vector<CandidateReport>& candidates);

}  // namespace fljsd::html
