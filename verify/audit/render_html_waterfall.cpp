// SPDX-License-Identifier: Apache-2.0
// Which rounding step adds what: a table for each candidate, with bars in its cells.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "verify/audit/render_html.h"
#include "verify/report/number.h"

namespace fljsd::html {
namespace {

struct Column {
  const char* title;
  std::optional<double> Errors::*error;
};
constexpr Column columns[] = {
    {"loss, relative", &Errors::loss},
    {"worst token's loss, nats", &Errors::token_loss},
    {"input gradient, relative L2", &Errors::student_input_grad},
    {"weight gradient, relative L2", &Errors::student_weight_grad},
};

// One axis for each column, the same for all candidates of a workload, so that bars can be compared.
std::vector<LogAxis> axes(const WorkloadReport& workload) {
  std::vector<LogAxis> result;
  for (const Column& column : columns) {
    std::vector<double> values;
    for (const Attribution& attribution : workload.attributions)
      for (const AttributionStep& step : attribution.steps)
        for (const Errors* errors : {&step.added, &step.total})
          if (const auto& error = errors->*column.error) values.push_back(*error);
    result.emplace_back(values, 12);
  }
  return result;
}

// Per cent of a cell's width: bars begin at the axis's lower end.
double share(const LogAxis& axis, double value) {
  if (!std::isfinite(value)) return 100;
  return std::max(0.0, (axis.place(value) - LogAxis::left) / (LogAxis::right - LogAxis::left) * 100);
}

Cell bar_cell(const LogAxis& axis, const std::optional<double>& added, const std::optional<double>& total,
              const char* classes) {
  Cell cell = error_cell(added);
  cell.classes += " bars";
  if (!added) return cell;
  Markup drawing = element("rect", {{"class", classes},
                                    {"x", 0},
                                    {"y", 1},
                                    {"height", 6},
                                    {"width", percent_of_width(share(axis, *added))}});
  if (total) {
    const std::string x = percent_of_width(std::min(share(axis, *total), 99.0));
    drawing += element("line", {{"class", "so-far"}, {"x1", x}, {"x2", x}, {"y1", 0}, {"y2", 8}});
  }
  cell.content =
      element("svg", {{"xmlns", "http://www.w3.org/2000/svg"}, {"aria-hidden", "true"}, {"height", 8}},
              drawing) +
      element("span", {}, cell.content);
  return cell;
}

Markup table_of(const Attribution& attribution, const std::vector<LogAxis>& scale, const Markup& name,
                const char* colour) {
  std::vector<Cell> headings = {{"step", ""}};
  for (std::size_t c = 0; c < scale.size(); ++c)
    headings.push_back(
        {{columns[c].title, element("br", {}),
          element("span", {{"class", "dim"}},
                  fmt::format("{} … {}", power_of_ten(scale[c].low()), power_of_ten(scale[c].high())))},
         ""});
  Table table(name, headings);
  const std::string bar = fmt::format("added {}", colour);
  std::string untouched;
  for (const AttributionStep& step : attribution.steps) {
    if (step.same_as_before) {
      untouched += (untouched.empty() ? "" : ", ") + step.name;
      continue;
    }
    std::vector<Cell> row = {{{step.name, element("span", {{"class", "does"}}, step.does)}, ""}};
    for (std::size_t c = 0; c < scale.size(); ++c)
      row.push_back(
          bar_cell(scale[c], step.added.*columns[c].error, step.total.*columns[c].error, bar.c_str()));
    table.add(std::move(row));
  }
  const Errors& total = attribution.steps.back().total;
  std::vector<Cell> all = {{"all together", "total"}};
  for (std::size_t c = 0; c < scale.size(); ++c) {
    all.push_back(bar_cell(scale[c], total.*columns[c].error, std::nullopt, "added all"));
    all.back().classes += " total";
  }
  table.add(std::move(all));
  Markup below;
  if (!untouched.empty()) below = note({"As float64 would: ", untouched, "."});
  return element("div", {{"class", "panel"}}, table.markup("waterfall") + below);
}

bool rounds(const Attribution& attribution) {
  return std::any_of(attribution.steps.begin(), attribution.steps.end(),
                     [](const AttributionStep& step) { return !step.same_as_before; });
}

}  // namespace

Markup waterfalls(const WorkloadReport& workload) {
  const std::vector<LogAxis> scale = axes(workload);
  Markup panels;
  for (const Attribution& attribution : workload.attributions) {
    if (!rounds(attribution)) continue;
    Markup name = attribution.candidate;
    const char* colour = "";
    for (std::size_t i = 0; i < workload.candidates.size(); ++i) {
      if (workload.candidates[i].name != attribution.candidate) continue;
      name = candidate_label(i, workload.candidates[i]);
      colour = css(workload.candidates[i].verdict.accuracy_class);
    }
    panels += table_of(attribution, scale, name, colour);
  }
  if (panels.empty()) return {};
  return {element("h3", {}, "What each rounding step adds"),
          paragraph("From float64 throughout to the candidate's own arithmetic, one step at a time from top "
                    "to bottom. The bar and the number: the distance between the results with and without "
                    "the step. The upright line: the error with all steps so far. Logarithmic, each column "
                    "on one scale for all candidates."),
          element("div", {{"class", "panels"}}, panels)};
}

}  // namespace fljsd::html
