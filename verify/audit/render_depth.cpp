// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "verify/audit/text_parts.h"
#include "verify/report/bar.h"
#include "verify/report/number.h"

namespace fljsd {
namespace {

std::vector<Cell> error_cells(Cell label, const Errors& errors) {
  return {std::move(label),
          error_cell(errors.loss),
          plain_cell(errors.token_loss),
          error_cell(errors.student_input_grad),
          error_cell(errors.median_token_grad),
          error_cell(errors.student_weight_grad)};
}

std::string error_table(const WorkloadReport& workload, int width) {
  Table table({"candidate", "loss", "token\nloss", "input\ngrad", "median\ntoken", "weight\ngrad",
               "test\nratio", "class"},
              {7});
  std::vector<Cell> zero = error_cells({"(an answer of zeros)", Style::dim}, workload.zero);
  zero.insert(zero.end(), {"", ""});
  table.add(std::move(zero));
  for (const CandidateReport& candidate : workload.candidates) {
    std::vector<Cell> row = error_cells(candidate.name, candidate.errors);
    const VerdictRow* worst = candidate.verdict.worst();
    row.push_back(worst ? short_number(worst->ratio, 2) : "-");
    row.push_back(!candidate.pass()             ? Cell("BROKEN", Style::bad)
                  : candidate.no_answer.empty() ? Cell("kept", Style::good)
                                                : Cell("no answer", Style::dim));
    table.add(std::move(row));
  }
  return table.text(2, width);
}

std::string certified_text(const WorkloadReport& workload, bool explain, int width) {
  if (workload.certified.empty()) return "";
  std::string out = "\n  Certified losses\n";
  if (explain)
    out += paragraph(
        "Intervals that enclose the true loss of a token, and the float64 truth that everything above is "
        "compared with.",
        width);
  for (const CertifiedToken& token : workload.certified) {
    out += fmt::format("  token {:<5} at least  {}\n", token.token, token.enclosure.lo_text.substr(0, 58));
    out += fmt::format("              at most   {}\n", token.enclosure.hi_text.substr(0, 58));
    out += fmt::format("              float64   {}\n", token.double_tier);
    out += fmt::format("              off by    {}, bound {}: {}\n", short_number(token.error, 2),
                       short_number(token.bound, 2),
                       token.kept() ? styled(Style::good, "kept") : styled(Style::bad, "MISSED"));
  }
  return out;
}

// The ways that round anything.
std::vector<const Attribution*> rounding_ways(const WorkloadReport& workload) {
  std::vector<const Attribution*> ways;
  for (const Attribution& attribution : workload.attributions) {
    const bool rounds = std::any_of(attribution.steps.begin(), attribution.steps.end(),
                                    [](const AttributionStep& step) { return !step.same_as_before; });
    if (rounds) ways.push_back(&attribution);
  }
  return ways;
}

// All candidates at once: what each step adds to the student-input gradient.
std::string attribution_matrix(const std::vector<const Attribution*>& ways, bool explain, int width) {
  std::string out = "\n  What each rounding step adds to the student-input gradient\n";
  if (explain)
    out += paragraph(
        "The distance between the gradients with and without the step, relative L2; steps are taken from "
        "top to bottom. A dot: the candidate does that step as float64 throughout would.",
        width);
  std::vector<std::string> names;
  for (const Attribution* way : ways) names.push_back(way->candidate);
  Table table(candidate_headings(names, "step"));
  // Candidates that keep fp32 logits lack the step that rounds them further: the longest way has every step.
  const Attribution& longest = **std::max_element(ways.begin(), ways.end(), [](const auto* a, const auto* b) {
    return a->steps.size() < b->steps.size();
  });
  for (const AttributionStep& row_step : longest.steps) {
    std::vector<Cell> row{row_step.name};
    for (const Attribution* way : ways) {
      const auto step = std::find_if(way->steps.begin(), way->steps.end(),
                                     [&](const AttributionStep& s) { return s.name == row_step.name; });
      row.push_back(step == way->steps.end() || step->same_as_before
                        ? Cell(".", Style::dim)
                        : error_cell(step->added.student_input_grad));
    }
    table.add(std::move(row));
  }
  return out + table.text(2, width);
}

// What a GPU's fp32 logits are off by, beside the bounds.
std::string tensor_core_text(const WorkloadReport& workload, int width) {
  if (!workload.tensor_core) return "";
  const TensorCoreLogits& logits = *workload.tensor_core;
  return '\n' +
         paragraph(
             fmt::format("Logits as Hopper's tensor cores sum them, {} of this workload: off by {} at "
                         "most. What each sum dropped bounds that by {} ({} of its bound at most), the "
                         "size of its terms by {} ({} of its bound at most).{}",
                         logits.logits, short_number(logits.error), short_number(logits.dropped),
                         short_number(logits.error_over_dropped), short_number(logits.a_priori),
                         short_number(logits.error_over_a_priori), logits.kept() ? "" : " BOUND BROKEN."),
             width);
}

// One candidate: what each step adds to losses and gradients, with bars for the student-input gradient.
std::string waterfall_text(const Attribution& attribution, int width) {
  constexpr int columns_of_numbers = 50;
  std::vector<double> sizes;
  for (const AttributionStep& step : attribution.steps)
    sizes.push_back(step.added.student_input_grad.value_or(0));
  const Errors& total = attribution.steps.back().total;
  sizes.push_back(total.student_input_grad.value_or(0));
  const LogScale scale(sizes, std::clamp(width - columns_of_numbers, 12, 60));

  Table table({"", "loss", "token\nloss", "weight\ngrad", "input\ngrad", scale.caption()}, {5});
  const auto add = [&](const Cell& label, const Errors& errors) {
    const double size = errors.student_input_grad.value_or(0);
    table.add({label,
               plain_cell(errors.loss),
               plain_cell(errors.token_loss),
               plain_cell(errors.student_weight_grad),
               error_cell(errors.student_input_grad),
               {scale.bar(size), error_style(size)}});
  };
  for (const AttributionStep& step : attribution.steps)
    if (!step.same_as_before) add(step.name, step.added);
  add({"all together", Style::bold}, total);
  return fmt::format("\n  {}, step by step\n{}", styled(Style::bold, attribution.candidate),
                     table.text(2, width));
}

// The waterfalls worth showing: all of up to three, else those of the least and the most accurate candidate.
std::vector<const Attribution*> shown_waterfalls(const std::vector<const Attribution*>& ways) {
  std::vector<const Attribution*> shown;
  for (const Attribution* way : ways)
    if (way->steps.back().total.student_input_grad) shown.push_back(way);
  if (shown.size() <= 3) return shown;
  const auto [best, worst] =
      std::minmax_element(shown.begin(), shown.end(), [](const auto* a, const auto* b) {
        return *a->steps.back().total.student_input_grad < *b->steps.back().total.student_input_grad;
      });
  return {*worst, *best};
}

}  // namespace

std::string depth_text(const WorkloadReport& workload, bool explain, int width) {
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
  if (explain)
    out += paragraph(
        "Errors: of the loss, relative; of the worst token's loss, absolute; of the gradients, relative "
        "L2, where an answer of zeros scores 1. Where a few tokens have almost all of the gradient, the "
        "student-input gradient's error is theirs; that of the median token, relative to its own gradient, "
        "stands beside it.",
        width);
  out += '\n' + error_table(workload, width);
  if (const auto ways = rounding_ways(workload); !ways.empty()) {
    out += attribution_matrix(ways, explain, width);
    for (const Attribution* way : shown_waterfalls(ways)) out += waterfall_text(*way, width);
  }
  return out + tensor_core_text(workload, width) + certified_text(workload, explain, width);
}

}  // namespace fljsd
