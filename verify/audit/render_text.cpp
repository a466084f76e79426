// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "verify/audit/render.h"
#include "verify/report/bar.h"
#include "verify/report/number.h"
#include "verify/report/table.h"

namespace fljsd {
namespace {

std::string section(const std::string& title) {
  return fmt::format("\n{}\n", styled(Style::bold, title));
}

std::string paragraph(const std::string& text, int width) {
  return "  " + wrapped(text, width - 2, 2) + '\n';
}

// "torch-eager-bf16" on several short lines.
std::string stacked(const std::string& name) {
  constexpr std::size_t most = 6;
  std::string out;
  std::size_t line = 0;
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('-', begin), name.size());
    const std::string word = name.substr(begin, end - begin);
    if (line > 0 && line + 1 + word.size() > most) {
      out += '\n';
      line = 0;
    } else if (line > 0) {
      out += '-';
      ++line;
    }
    out += word;
    line += word.size();
    begin = end + 1;
  }
  return out;
}

std::vector<std::string> candidate_headings(const WorkloadReport& workload, const std::string& first) {
  std::vector<std::string> headings{first};
  for (const CandidateReport& candidate : workload.candidates) headings.push_back(stacked(candidate.name));
  return headings;
}

// Errors of at least 1 are no better than an answer of zeros.
Style error_style(double relative_error) {
  return !(relative_error < 1) ? Style::bad : !(relative_error < 0.01) ? Style::warning : Style::plain;
}

Cell error_cell(const std::optional<double>& error, int digits = 3) {
  if (!error) return {"-", Style::dim};
  return {short_number(*error, digits), error_style(*error)};
}

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
  Table table(candidate_headings(survey.front(), "family"));
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

std::string survey_text(const std::vector<WorkloadReport>& survey, int width) {
  if (survey.empty()) return "";
  std::string out = section("All input families, small sizes");
  out += paragraph(
      "Test ratio: error over the budget of the class that a candidate declares, the worst of all "
      "quantities and of each family's cases. Up to 1 the promise is kept.",
      width);
  out += family_table(
      survey,
      [](const CandidateReport& c) -> std::optional<double> {
        const VerdictRow* worst = c.verdict.worst();
        return worst ? std::optional(worst->ratio) : std::nullopt;
      },
      [](const std::optional<double>& ratio) -> Cell {
        if (!ratio) return {"-", Style::dim};
        return {short_number(*ratio, 2), *ratio <= 1 ? Style::plain : Style::bad};
      },
      width);
  out += '\n';
  out += paragraph(
      "Relative L2 error of the student-input gradient, the worst of each family's cases. An answer of "
      "zeros scores 1.",
      width);
  out += family_table(
      survey, [](const CandidateReport& c) { return c.errors.student_input_grad; },
      [](const std::optional<double>& error) { return error_cell(error, 2); }, width);
  return out;
}

std::string error_table(const WorkloadReport& workload, int width) {
  Table table({"candidate", "loss", "token\nloss", "input\ngrad", "median\ntoken", "weight\ngrad",
               "test\nratio", "class"},
              {7});
  const auto errors_row = [](Cell label, const Errors& errors, Cell ratio, Cell outcome) {
    // The losses of tokens are absolute: no style marks them.
    const Cell token_loss =
        errors.token_loss ? Cell(short_number(*errors.token_loss, 2)) : Cell("-", Style::dim);
    return std::vector<Cell>{std::move(label),
                             error_cell(errors.loss, 2),
                             token_loss,
                             error_cell(errors.student_input_grad, 2),
                             error_cell(errors.median_token_grad, 2),
                             error_cell(errors.student_weight_grad, 2),
                             std::move(ratio),
                             std::move(outcome)};
  };
  table.add(errors_row({"(an answer of zeros)", Style::dim}, workload.zero, "", ""));
  for (const CandidateReport& candidate : workload.candidates) {
    const VerdictRow* worst = candidate.verdict.worst();
    table.add(errors_row(candidate.name, candidate.errors, worst ? short_number(worst->ratio, 2) : "-",
                         candidate.verdict.pass() ? Cell("kept", Style::good) : Cell("BROKEN", Style::bad)));
  }
  return paragraph(
             "Errors: of the loss, relative; of the worst token's loss, absolute; of the gradients, relative "
             "L2, "
             "where an answer of zeros scores 1. The median token is that of the student-input gradient, "
             "each "
             "token's error relative to its own gradient.",
             width) +
         '\n' + table.text(2, width);
}

std::string certified_text(const WorkloadReport& workload, int width) {
  if (workload.certified.empty()) return "";
  std::string out = '\n' + paragraph(
                               "Certified: intervals that enclose the true loss of a token, and the float64 "
                               "truth that everything above is compared with.",
                               width);
  for (const CertifiedToken& token : workload.certified) {
    out += fmt::format("  token {}\n", token.token);
    out += fmt::format("    at least  {}\n    at most   {}\n", token.enclosure.lo_text.substr(0, 64),
                       token.enclosure.hi_text.substr(0, 64));
    out += fmt::format("    float64   {}, off by {}, bound {}: {}\n", token.double_tier,
                       short_number(token.error), short_number(token.bound),
                       token.kept() ? styled(Style::good, "kept") : styled(Style::bad, "MISSED"));
  }
  return out;
}

// All candidates at once: what each step adds to the student-input gradient.
std::string attribution_matrix(const WorkloadReport& workload, int width) {
  std::string out =
      '\n' + paragraph(
                 "What each rounding step adds to the student-input gradient: the distance between "
                 "the gradients with and without it, relative L2. A dot: the step rounds nothing.",
                 width);
  Table table(candidate_headings(workload, "step"));
  // Candidates that keep fp32 logits have no step that rounds them further: rows are the union of all steps.
  const auto& longest = *std::max_element(
      workload.attributions.begin(), workload.attributions.end(),
      [](const Attribution& a, const Attribution& b) { return a.steps.size() < b.steps.size(); });
  for (const AttributionStep& row_step : longest.steps) {
    std::vector<Cell> row{row_step.name};
    for (const Attribution& attribution : workload.attributions) {
      const auto step = std::find_if(attribution.steps.begin(), attribution.steps.end(),
                                     [&](const AttributionStep& s) { return s.name == row_step.name; });
      if (step == attribution.steps.end() || step->same_as_before)
        row.push_back({".", Style::dim});
      else
        row.push_back(error_cell(step->added.student_input_grad, 2));
    }
    table.add(std::move(row));
  }
  return out + table.text(2, width);
}

// One candidate: what each step adds, with bars.
std::string waterfall_text(const Attribution& attribution, int width) {
  constexpr int bar_columns_at_80 = 24;
  std::vector<double> gradients;
  for (const AttributionStep& step : attribution.steps)
    gradients.push_back(step.added.student_input_grad.value_or(0));
  const LogScale scale(gradients, std::clamp(bar_columns_at_80 + width - 80, 12, 60));
  Table table({attribution.candidate + "\nadds to", "loss,\nrelative", "token loss,\nabsolute",
               "weight grad,\nrel. L2", "input grad,\nrel. L2", scale.caption()},
              {5});
  for (const AttributionStep& step : attribution.steps) {
    if (step.same_as_before) continue;
    const double added = step.added.student_input_grad.value_or(0);
    const auto number = [](const std::optional<double>& value) {
      return value ? Cell(short_number(*value, 2)) : Cell("-", Style::dim);
    };
    table.add({step.name,
               number(step.added.loss),
               number(step.added.token_loss),
               number(step.added.student_weight_grad),
               error_cell(step.added.student_input_grad, 2),
               {scale.bar(added), error_style(added)}});
  }
  const Errors& total = attribution.steps.back().total;
  const auto number = [](const std::optional<double>& value) {
    return value ? Cell(short_number(*value, 2), Style::bold) : Cell("-", Style::dim);
  };
  table.add({{"all together", Style::bold},
             number(total.loss),
             number(total.token_loss),
             number(total.student_weight_grad),
             number(total.student_input_grad),
             ""});
  return '\n' + table.text(2, width);
}

// The waterfalls worth showing: all of up to three candidates, else the least and the most accurate one.
std::vector<const Attribution*> shown_waterfalls(const WorkloadReport& workload) {
  std::vector<const Attribution*> shown;
  for (const Attribution& attribution : workload.attributions) {
    const bool rounds = std::any_of(attribution.steps.begin(), attribution.steps.end(),
                                    [](const AttributionStep& step) { return !step.same_as_before; });
    if (rounds && attribution.steps.back().total.student_input_grad) shown.push_back(&attribution);
  }
  if (shown.size() <= 3) return shown;
  const auto [best, worst] =
      std::minmax_element(shown.begin(), shown.end(), [](const Attribution* a, const Attribution* b) {
        return *a->steps.back().total.student_input_grad < *b->steps.back().total.student_input_grad;
      });
  return {*worst, *best};
}

std::string depth_text(const WorkloadReport& workload, int width) {
  const WorkloadInfo& info = workload.info;
  std::string out = section(fmt::format("In depth: {}, {} tokens, vocab {}, hidden {}", info.family,
                                        info.tokens, info.vocab, info.student_hidden));
  std::string what = info.judged_tokens == info.tokens
                         ? std::string("All tokens")
                         : fmt::format("A sample of {} tokens", info.judged_tokens);
  what += fmt::format(
      ", taken as one batch; {} rows of the weight gradient; beta {}, temperature {}, {}, seed {}.",
      info.weight_rows, info.beta, info.temperature, info.dtype, info.seed);
  if (workload.true_loss) what += fmt::format(" The true loss is {}.", *workload.true_loss);
  out += paragraph(what, width);
  out += error_table(workload, width);
  if (!workload.attributions.empty()) {
    out += attribution_matrix(workload, width);
    for (const Attribution* attribution : shown_waterfalls(workload))
      out += waterfall_text(*attribution, width);
  }
  out += certified_text(workload, width);
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
    out += styled(Style::bold, "Candidates, the class each declares, and what they are models of") + '\n';
    out += candidates_text(any.front().candidates, width);
  }
  out += survey_text(report.survey, width);
  for (const WorkloadReport& workload : report.in_depth) out += depth_text(workload, width);

  out += section("Summary");
  for (const std::string& sentence : audit_summary(report)) out += paragraph(sentence, width);
  const RunRecord& run = report.run;
  out += '\n' +
         styled(Style::dim,
                fmt::format("  fljsd {} {}, {}, {} threads, seed {}, {}, peak memory {}", run.version,
                            run.commit, run.cpu, run.threads, run.seed, duration(run.seconds),
                            byte_count(static_cast<double>(run.peak_memory)))) +
         '\n';
  return out;
}

}  // namespace fljsd
