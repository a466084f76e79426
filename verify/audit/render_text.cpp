// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "verify/audit/findings.h"
#include "verify/audit/render.h"
#include "verify/audit/text_parts.h"
#include "verify/report/number.h"

namespace fljsd {
namespace {

// The largest of what the cases of one family say, NaN included; absent if none says anything.
class Largest {
 public:
  void add(const std::optional<double>& value) {
    if (value && (!largest_ || !(*value <= *largest_))) largest_ = value;
  }
  const std::optional<double>& value() const { return largest_; }

 private:
  std::optional<double> largest_;
};

// Rows: families; columns: candidates; the largest over each family's cases of what `number` takes from a
// candidate.
template <class Number, class MakeCell>
std::string family_table(const std::vector<WorkloadReport>& survey, const Number& number,
                         const MakeCell& make_cell, int width) {
  std::vector<std::string> names;
  for (const CandidateReport& candidate : survey.front().candidates) names.push_back(candidate.name);
  Table table(candidate_headings(names, "family"));
  for (std::size_t first = 0; first < survey.size();) {
    const std::string& family = survey[first].info.family;
    std::size_t last = first;
    while (last < survey.size() && survey[last].info.family == family) ++last;
    std::vector<Cell> row{family};
    for (std::size_t c = 0; c < survey[first].candidates.size(); ++c) {
      Largest largest;
      for (std::size_t w = first; w < last; ++w) largest.add(number(survey[w].candidates[c]));
      row.push_back(make_cell(largest.value()));
    }
    table.add(std::move(row));
    first = last;
  }
  return table.text(2, width);
}

// Why errors relative to the gradient can be absent, or large without breaking a budget: said only where it
// happens.
std::string about_relative_errors(const std::vector<WorkloadReport>& survey) {
  std::vector<std::string> zero, not_finite, tiny;
  const auto add = [](std::vector<std::string>& families, const std::string& family) {
    if (families.empty() || families.back() != family) families.push_back(family);
  };
  for (const WorkloadReport& workload : survey) {
    const std::string& family = workload.info.family;
    // Zeros are off by the whole gradient: by 0 only if it is 0.
    if (!workload.zero.student_input_grad) {
      add(not_finite, family);
    } else if (*workload.zero.student_input_grad == 0) {
      add(zero, family);
    }
    for (const CandidateReport& candidate : workload.candidates) {
      const auto& error = candidate.errors.student_input_grad;
      if (error && *error > 1 && candidate.verdict.pass()) add(tiny, family);
    }
  }
  std::string text;
  if (!zero.empty())
    text += fmt::format(" A dash on {}: the true gradient is 0, so nothing is relative to it.", listed(zero));
  if (!not_finite.empty())
    text += fmt::format(" A dash on {}: it holds NaN or infinity.", listed(not_finite));
  if (!tiny.empty())
    text += fmt::format(
        " Above 1 and within the budget on {}: the true gradient is smaller than what the class resolves.",
        listed(tiny));
  return text;
}

std::string survey_text(const std::vector<WorkloadReport>& survey, int width) {
  if (survey.empty()) return "";
  std::string out = section("All input families, small sizes");
  out += paragraph(
      "Test ratio: error over the budget of the class that a candidate declares, the worst of all "
      "quantities and of each family's cases. Up to 1 the promise is kept; inf is NaN or infinity where the "
      "truth is "
      "finite, or no answer where there should be one; a dash where nothing bounds the class, which may "
      "overflow "
      "there, or where the candidate lacks what the cases need.",
      width);
  out += family_table(
      survey, worst_ratio,
      [](const std::optional<double>& ratio) -> Cell {
        if (!ratio) return {"-", Style::dim};
        return {short_number(*ratio, 2), *ratio <= 1 ? Style::plain : Style::bad};
      },
      width);
  out += '\n';
  out += paragraph(
      std::string("Relative L2 error of the student-input gradient, the worst of each family's cases. An ") +
          "answer of "
          "zeros scores 1." +
          about_relative_errors(survey),
      width);
  out += family_table(
      survey, [](const CandidateReport& c) { return c.errors.student_input_grad; }, error_cell, width);
  return out;
}

std::string candidates_text(const std::vector<CandidateReport>& candidates, int width) {
  std::string out;
  constexpr int indent = 37;
  for (const CandidateReport& candidate : candidates) {
    out += fmt::format("  {:<22}{:<13}{}\n", candidate.name, name(candidate.verdict.accuracy_class),
                       wrapped(candidate.description, width - indent, indent));
  }
  return out;
}

}  // namespace

std::string audit_text(const AuditReport& report, int width) {
  width = std::clamp(width, 80, 120);
  std::string out;
  const std::vector<WorkloadReport>& any = report.survey.empty() ? report.in_depth : report.survey;
  if (!any.empty()) {
    out += styled(Style::bold, "Candidates, the class each declares, and what it is (a model of)") + '\n';
    out += candidates_text(any.front().candidates, width);
  }
  out += survey_text(report.survey, width);
  for (const WorkloadReport& workload : report.in_depth)
    out += depth_text(workload, &workload == &report.in_depth.front(), width);

  out += section("Summary");
  for (const std::string& sentence : audit_summary(report)) out += paragraph(sentence, width);
  const RunRecord& run = report.run;
  const std::string record = fmt::format(
      "fljsd {} {}, {}, {} threads, seed {}, {}, peak memory {}", run.version, run.commit, run.cpu,
      run.threads, run.seed, duration(run.seconds), byte_count(static_cast<double>(run.peak_memory)));
  out += "\n  " + styled(Style::dim, wrapped(record, width - 2, 2)) + '\n';
  return out;
}

}  // namespace fljsd
