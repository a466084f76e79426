// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "verify/audit/render_html.h"
#include "verify/audit/render_html_errors.h"
#include "verify/audit/render_html_histogram.h"
#include "verify/report/number.h"

namespace fljsd::html {
namespace {

// The survey's workloads, family by family.
std::vector<std::vector<const WorkloadReport*>> by_family(const std::vector<WorkloadReport>& survey) {
  std::vector<std::vector<const WorkloadReport*>> families;
  for (const WorkloadReport& workload : survey) {
    if (families.empty() || families.back().front()->info.family != workload.info.family)
      families.emplace_back();
    families.back().push_back(&workload);
  }
  return families;
}

Cell ratio_cell(const std::optional<double>& ratio) {
  if (!ratio) return {"–", "number dim"};
  if (!std::isfinite(*ratio)) return {"✕ NaN or ∞", "number broken"};
  if (!(*ratio <= 1)) return {"✕ " + short_number(*ratio, 2), "number broken"};
  return {short_number(*ratio, 2), *ratio > 0.3 ? "number near" : *ratio > 0.03 ? "number some" : "number"};
}

std::string shape(const WorkloadInfo& info) {
  const std::string hidden = info.student_hidden == info.teacher_hidden
                                 ? fmt::format("{}", info.student_hidden)
                                 : fmt::format("{}/{}", info.student_hidden, info.teacher_hidden);
  return fmt::format("{} tokens, vocab {}, hidden {}, beta {}, temperature {}", info.judged_tokens,
                     info.vocab, hidden, info.beta, info.temperature);
}

}  // namespace

Markup ratios_section(const AuditReport& report) {
  if (report.survey.empty()) return {};
  const auto families = by_family(report.survey);
  std::vector<Cell> headings = {{"input family", ""}};
  const std::vector<CandidateReport>& candidates = report.survey.front().candidates;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    headings.push_back({candidate_label(i, candidates[i]), "number"});
  Table table("Worst test ratio of all quantities and of each family's cases.", headings);
  for (const auto& cases : families) {
    const WorkloadInfo& info = cases.front()->info;
    std::vector<Cell> row = {{fmt::format("{} {}", info.family_number, info.family), "nowrap"}};
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      std::optional<double> worst;
      for (const WorkloadReport* workload : cases)
        if (const auto found = worst_ratio(workload->candidates[c]))
          worst = std::max(worst.value_or(0), *found);
      row.push_back(ratio_cell(worst));
    }
    table.add(std::move(row));
  }
  std::string shapes;
  for (const WorkloadReport* workload : families.front())
    shapes += (shapes.empty() ? "" : "; ") + shape(workload->info);
  return section(
      "ratios", "Is every promise kept? Test ratios by input family",
      {paragraph("The test ratio is the error over the budget of the class that a candidate declares. Up to "
                 "1 the promise is kept; ✕ marks what breaks it. A dash: nothing bounds the class there, "
                 "because its format may overflow, or the candidate lacks what the cases need. Shades: above "
                 "0.03, above 0.3."),
       table.markup("ratios"), note({"Cases of each family: ", shapes, "."})});
}

Markup errors_section(const AuditReport& report) {
  if (report.survey.empty()) return {};
  const auto families = by_family(report.survey);
  Markup figures;
  for (const Quantity& quantity : quantities()) {
    std::vector<ErrorRow> rows;
    double any = -1;
    for (const auto& cases : families) {
      // The case in which a candidate comes nearest to its budget.
      ErrorRow worst;
      for (const WorkloadReport* workload : cases) {
        ErrorRow row = error_row(workload->info.family, *workload, quantity);
        if (worst.found.empty() || hardest(row) > hardest(worst)) worst = std::move(row);
      }
      any = std::max(any, hardest(worst));
      rows.push_back(std::move(worst));
    }
    if (any < 0) continue;  // no case has this tensor
    figures += element(
        "figure", {},
        {element("figcaption", {}, {element("h3", {}, quantity.title)}), error_drawing(rows, quantity.unit)});
  }
  return section(
      "errors", "How large are the errors? By family and quantity",
      {paragraph("Of each family the case in which a candidate comes nearest to its budget. Logarithmic "
                 "scales; errors of exactly 0 stand at the left edge, NaN and infinity at the right one. "
                 "Where a marker passes the zero line, an answer of zeros would have been no worse."),
       error_legend(report.survey.front().candidates), element("div", {{"class", "figures"}}, figures)});
}

Markup tokens_section(const AuditReport& report) {
  if (report.survey.empty()) return {};
  std::vector<HistogramRow> rows;
  const std::vector<CandidateReport>& candidates = report.survey.front().candidates;
  bool any = false;
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    HistogramRow row{candidate_label(c, candidates[c]), candidates[c].verdict.accuracy_class, {}};
    for (const WorkloadReport& workload : report.survey) {
      const std::vector<double>& ratios = workload.candidates[c].verdict.token_ratio;
      row.errors.insert(row.errors.end(), ratios.begin(), ratios.end());
    }
    any = any || !row.errors.empty();
    rows.push_back(std::move(row));
  }
  if (!any) return {};
  return section(
      "tokens", "How do the tokens spread? Test ratios of single losses",
      {paragraph("All tokens of all families: the error of each token's loss over its own budget. "
                 "The dashed line is the budget, 1. At the left edge are tokens without any error "
                 "(ignored ones are among them), at the right edge NaN and infinity. The number "
                 "on a bar is its count of tokens; bars at the edges are never higher than the fullest bin."),
       element("figure", {}, histogram_drawing(rows, "error / budget", 1.0))});
}

}  // namespace fljsd::html
