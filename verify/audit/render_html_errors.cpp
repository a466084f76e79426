// SPDX-License-Identifier: Apache-2.0
#include "verify/audit/render_html_errors.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "verify/report/number.h"

namespace fljsd::html {
namespace {

// A lane for one candidate, and what each further one adds.
constexpr double lane_height = 13, stagger = 2.2, margin = 3;
constexpr AccuracyClass lanes[] = {AccuracyClass::bf16_logits, AccuracyClass::fp32_logits,
                                   AccuracyClass::float64};

// The truth is 0 and the error absolute, or the error is relative as the axis says.
bool fits_axis(const VerdictRow& row) {
  return !row.measure.starts_with("L2 (");
}

// The largest of what the rows say; absent if no row says anything finite.
template <class Number>
std::optional<double> largest(const ErrorRow& row, const Number& number) {
  std::optional<double> result;
  for (const VerdictRow* found : row.found) {
    if (!found) continue;
    const double value = number(*found);
    if (std::isfinite(value) && (!result || value > *result)) result = value;
  }
  return result;
}

// What a screen reader, or a pointer at rest, says about the row.
std::string spoken(const ErrorRow& row) {
  std::string text;
  for (std::size_t i = 0; i < row.found.size(); ++i) {
    if (!row.found[i]) continue;
    if (!text.empty()) text += "; ";
    text += fmt::format("{}: error {}, budget {}", row.candidates[i], error_text(row.found[i]->error),
                        std::isfinite(row.found[i]->budget) ? short_number(row.found[i]->budget, 2) : "none");
  }
  return text + '.';
}

double height_of(const ErrorRow& row, AccuracyClass accuracy_class) {
  const auto count = std::count(row.classes.begin(), row.classes.end(), accuracy_class);
  return count == 0 ? 0 : lane_height + stagger * static_cast<double>(count - 1);
}

// Why the row is not a drawing; empty if it is one.
std::string instead(const ErrorRow& row) {
  bool any = false, relative = true, judged = false, finite = true;
  std::string why_not;
  for (const VerdictRow* found : row.found) {
    if (!found) continue;
    any = true;
    relative = relative && fits_axis(*found);
    judged = judged || found->judged;
    finite = finite && std::isfinite(found->error);
    why_not = found->note;
  }
  if (!any) return "no such tensor";
  // Nobody is to blame for NaN where the truth is not finite either.
  if (!judged && !finite) return why_not;
  if (relative) return "";
  const auto error = largest(row, [](const VerdictRow& r) { return r.error; });
  const auto ratio = largest(row, [](const VerdictRow& r) { return r.judged ? r.ratio : 0; });
  for (const VerdictRow* found : row.found)
    if (found && !found->judged) return found->note;
  return fmt::format("the truth is 0: absolute L2 errors up to {}, at most {} of the budget",
                     error_text(error), error_text(ratio));
}

Markup note_below(const ErrorRow& row) {
  bool unbounded = false;
  for (const VerdictRow* found : row.found) unbounded = unbounded || (found && !found->judged);
  return {row.below, unbounded ? "not bounded" : ""};
}

// One class's allowance and its candidates' errors.
Markup lane(const LogAxis& axis, const ErrorRow& row, AccuracyClass accuracy_class, double top) {
  std::set<double> budgets;
  bool any = false;
  std::size_t broken = 0;
  for (std::size_t i = 0; i < row.found.size(); ++i) {
    if (row.classes[i] != accuracy_class || !row.found[i]) continue;
    any = true;
    budgets.insert(row.found[i]->budget);
    broken += std::isfinite(row.found[i]->error) ? 0 : 1;
  }
  if (!any) return {};
  Markup out;
  const double height = height_of(row, accuracy_class);
  const double least = *budgets.begin();  // budgets of several candidates may be those of different tokens
  const double end = std::isfinite(least) ? axis.place(least) : LogAxis::right;
  if (end > LogAxis::left) {
    out += element("rect", {{"class", fmt::format("allowed {}", css(accuracy_class))},
                            {"x", percent_of_width(LogAxis::left)},
                            {"y", top + 3},
                            {"width", percent_of_width(end - LogAxis::left)},
                            {"height", height - 6}});
  }
  for (const double budget : budgets)
    out += line_at(axis, budget, top + 1, top + height - 1, fmt::format("budget {}", css(accuracy_class)));
  std::size_t broken_so_far = 0, position = 0;
  for (std::size_t i = 0; i < row.found.size(); ++i) {
    if (row.classes[i] != accuracy_class) continue;
    // A little below each other, so that equal errors remain several markers.
    const double y = top + lane_height / 2 + stagger * static_cast<double>(position++);
    if (!row.found[i]) continue;
    const double error = row.found[i]->error;
    double place = axis.place(error);
    // Side by side in the gutter, where they would all have one place.
    if (!std::isfinite(error))
      place += (static_cast<double>(broken_so_far++) - static_cast<double>(broken - 1) / 2) *
               std::min(2.4, 6.0 / static_cast<double>(broken));
    out += marker(i, accuracy_class, place, y);
    if (std::isfinite(error) && place == LogAxis::right && !axis.on_scale(error))
      out += element("text",
                     {{"class", fmt::format("beyond {}", css(accuracy_class))},
                      {"x", percent_of_width(LogAxis::right + 1)},
                      {"y", y + 4}},
                     "▸");
  }
  return out;
}

Markup draw(const LogAxis& axis, const ErrorRow& row) {
  if (const std::string words = instead(row); !words.empty())
    return drawing_row(row.name, row.below, element("p", {{"class", "instead"}}, words));
  double height = 2 * margin;
  for (const AccuracyClass c : lanes) height += height_of(row, c);
  Markup content = element("rect", {{"class", "gutter"},
                                    {"x", percent_of_width(LogAxis::not_finite_place - 3.5)},
                                    {"y", 0},
                                    {"width", "6.5%"},
                                    {"height", height}});
  content += axis_lines(axis, height);
  content +=
      line_at(axis, largest(row, [](const VerdictRow& r) { return r.bf16_budget; }), 0, height, "bf16-line");
  content +=
      line_at(axis, largest(row, [](const VerdictRow& r) { return r.zero_error; }), 0, height, "zero-line");
  double top = margin;
  for (const AccuracyClass c : lanes) {
    content += lane(axis, row, c, top);
    top += height_of(row, c);
  }
  return drawing_row(row.name, note_below(row), svg(height, spoken(row), content));
}

// Whole decades for everything that can be compared. Budgets and errors far above what an answer of zeros
// scores would squeeze the rest: they are drawn at the end of the scale.
LogAxis axis_for(const std::vector<ErrorRow>& rows) {
  std::vector<double> values;
  double top = 0;
  for (const ErrorRow& row : rows)
    if (instead(row).empty())
      top = std::max(top, largest(row, [](const VerdictRow& r) { return r.zero_error; }).value_or(0));
  const double most = top > 0 ? 100 * top : HUGE_VAL;
  for (const ErrorRow& row : rows) {
    if (!instead(row).empty()) continue;
    for (const VerdictRow* found : row.found) {
      if (!found) continue;
      for (const double value : {found->error, found->budget, found->bf16_budget, found->zero_error})
        if (value <= most) values.push_back(value);
    }
  }
  return LogAxis(values, 22);
}

}  // namespace

const std::vector<Quantity>& quantities() {
  static const std::vector<Quantity> all = {
      {"loss", "Loss", "absolute", "absolute error, nats"},
      {"token_loss", "Loss of the worst token", "worst token", "absolute error, nats"},
      {"student_input_grad", "Gradient of the student input", "relative L2", "relative L2 error"},
      {"student_weight_grad", "Gradient of the student weight", "relative L2", "relative L2 error"},
      {"student_bias_grad", "Gradient of the student bias", "worst element", "absolute error of an element"},
  };
  return all;
}

ErrorRow error_row(const Markup& name, const WorkloadReport& workload, const Quantity& quantity) {
  ErrorRow row;
  row.name = name;
  for (const CandidateReport& candidate : workload.candidates) {
    row.classes.push_back(candidate.verdict.accuracy_class);
    row.candidates.push_back(candidate.name);
    row.found.push_back(nullptr);
    for (const VerdictRow& found : candidate.verdict.rows)
      if (found.quantity == quantity.name && (found.measure == quantity.measure || !fits_axis(found)))
        row.found.back() = &found;
  }
  return row;
}

double hardest(const ErrorRow& row) {
  double ratio = -1;
  for (const VerdictRow* found : row.found)
    if (found) ratio = std::max(ratio, found->judged ? found->ratio : 0);
  return ratio;
}

Markup error_drawing(const std::vector<ErrorRow>& rows, const Markup& unit) {
  const LogAxis axis = axis_for(rows);
  Markup content = axis_labels(axis, unit);
  for (const ErrorRow& row : rows) content += draw(axis, row);
  content += axis_labels(axis, unit);
  return element("div", {{"class", "drawing"}}, content);
}

Markup error_legend(const std::vector<CandidateReport>& candidates) {
  const auto line = [](const char* classes) {
    return key(element("line", {{"class", classes}, {"x1", 7}, {"x2", 7}, {"y1", 0}, {"y2", 14}}));
  };
  Markup items;
  for (const AccuracyClass c : lanes) {
    Markup names;
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (candidates[i].verdict.accuracy_class == c) names += {" ", candidate_label(i, candidates[i])};
    if (names.empty()) continue;
    items += element("li", {}, {element("b", {{"class", css(c)}}, std::string(name(c))), names});
  }
  const Markup bar = element("span", {{"class", "swatch"}}, {});
  items += element("li", {},
                   {bar, " what the class allows, up to its budget ", line("budget plain"),
                    " (to the end of the scale where nothing bounds it)"});
  items += element("li", {}, {line("zero-line"), " an answer of zeros"});
  items += element("li", {}, {line("bf16-line"), " what a pipeline with bf16 logits may score"});
  items += element("li", {}, "▸ beyond the scale");
  return element("ul", {{"class", "legend"}}, items);
}

}  // namespace fljsd::html
