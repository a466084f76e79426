// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "verify/audit/findings.h"
#include "verify/audit/render.h"
#include "verify/report/number.h"

namespace fljsd {
namespace {

std::string counted(std::size_t count, const std::string& one, const std::string& many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string what_was_judged(const AuditReport& report) {
  std::set<std::string> families, candidates;
  for (const auto* part : {&report.survey, &report.in_depth}) {
    for (const WorkloadReport& workload : *part) {
      families.insert(workload.info.family);
      for (const CandidateReport& candidate : workload.candidates) candidates.insert(candidate.name);
    }
  }
  std::string text =
      fmt::format("Judged {} on {} of {}", counted(candidates.size(), "candidate", "candidates"),
                  counted(report.survey.size(), "small case", "small cases"),
                  counted(families.size(), "input family", "input families"));
  if (!report.in_depth.empty()) {
    const WorkloadInfo& info = report.in_depth.front().info;
    text += fmt::format(" and in depth on {} of vocab {} x hidden {}, {} of {} tokens each",
                        counted(report.in_depth.size(), "workload", "workloads"), info.vocab,
                        info.student_hidden, info.judged_tokens, info.tokens);
  }
  return text + '.';
}

std::vector<std::string> broken_promises(const AuditReport& report) {
  std::vector<std::string> sentences;
  for (const BrokenClass& f : broken_classes(report)) {
    if (!f.worst) continue;
    sentences.push_back(
        fmt::format("{} breaks its class {} on {}: {} ({}) is off by {}, {} times the budget.", f.candidate,
                    name(f.accuracy_class), f.family, f.worst->quantity, f.worst->measure,
                    short_number(f.worst->error), short_number(f.worst->ratio)));
  }
  for (const NotFinite& group : not_finite(report)) {
    sentences.push_back(
        fmt::format("On {} inputs {} {} NaN or infinity where the truth is finite, which breaks any class.",
                    listed({group.families.begin(), group.families.end()}), listed(group.candidates),
                    group.candidates.size() == 1 ? "returns" : "return"));
    sentences.insert(sentences.end(), group.causes.begin(), group.causes.end());
  }
  const std::vector<NoAnswer> silent = no_answers(report);
  const auto sentence = [](const NoAnswer& n) {
    return fmt::format("{} gave no answer to {} of {} inputs: {}.", n.candidate,
                       counted(static_cast<std::size_t>(n.cases), "case", "cases"),
                       listed({n.families.begin(), n.families.end()}), n.why);
  };
  for (const NoAnswer& n : silent)
    if (n.broke_down) sentences.push_back(sentence(n));
  if (sentences.empty()) sentences.push_back("Every candidate keeps the class it declares.");
  for (const NoAnswer& n : silent)
    if (!n.broke_down) sentences.push_back(sentence(n));
  return sentences;
}

// The error of the student-input gradient that a sentence is about. The batch's is the error of its largest
// gradients; where the median token is worse off, that is what most tokens see.
double gradient_error(const CandidateReport& candidate) {
  return std::max(*candidate.errors.student_input_grad, candidate.errors.median_token_grad.value_or(0));
}

// Losses beside gradients: what the scalar hides.
std::vector<std::string> about_workload(const WorkloadReport& workload) {
  // float64 is the truth's own arithmetic; a reader wants to know about the others.
  std::vector<const CandidateReport*> others;
  for (const CandidateReport& candidate : workload.candidates) {
    if (candidate.verdict.accuracy_class != AccuracyClass::float64 && candidate.errors.student_input_grad)
      others.push_back(&candidate);
  }
  if (others.empty()) return {};
  const auto [least, most] = std::minmax_element(others.begin(), others.end(),
                                                 [](const CandidateReport* a, const CandidateReport* b) {
                                                   return gradient_error(*a) < gradient_error(*b);
                                                 });
  const CandidateReport &best = **least, &worst = **most;
  const auto off_by = [](const CandidateReport& c) {
    if (!c.errors.median_token_grad) return percent(*c.errors.student_input_grad);
    return fmt::format("{} over the batch and {} for the median token", percent(*c.errors.student_input_grad),
                       percent(*c.errors.median_token_grad));
  };

  std::vector<std::string> sentences;
  const std::string on = fmt::format("On {} inputs", workload.info.family);
  for (const CandidateReport* c : others) {
    if (gradient_error(*c) < 1) continue;
    const std::string loss = c->errors.loss ? percent(*c->errors.loss) : "nothing measurable";
    sentences.push_back(
        fmt::format("{} {} has its scalar loss within {} of the truth, but its student-input gradient is off "
                    "by {}; an answer of "
                    "zeros is off by 100 %.",
                    sentences.empty() ? on : "There,", c->name, loss, off_by(*c)));
  }
  const std::string start = sentences.empty() ? on : "There,";
  if (&best == &worst) {
    if (sentences.empty())
      sentences.push_back(
          fmt::format("{} the student-input gradient of {} is off by {}.", on, best.name, off_by(best)));
  } else if (!sentences.empty()) {
    sentences.push_back(
        fmt::format("{} the most accurate candidate is {}: off by {}.", start, best.name, off_by(best)));
  } else {
    sentences.push_back(
        fmt::format("{} the student-input gradient over the batch is off by {} ({}) to {} ({}).", on,
                    percent(*best.errors.student_input_grad), best.name,
                    percent(*worst.errors.student_input_grad), worst.name));
  }

  for (const Attribution& attribution : workload.attributions) {
    if (attribution.candidate != worst.name) continue;
    const AttributionStep* largest = nullptr;
    for (const AttributionStep& step : attribution.steps) {
      if (step.added.student_input_grad &&
          (!largest || *step.added.student_input_grad > *largest->added.student_input_grad))
        largest = &step;
    }
    if (largest)
      sentences.push_back(fmt::format("Of the error of {}, one step adds the most: {} ({}).", worst.name,
                                      largest->does, percent(*largest->added.student_input_grad)));
  }
  return sentences;
}

std::string about_certified(const AuditReport& report) {
  std::size_t tokens = 0, settled = 0, missed = 0;
  for (const auto* part : {&report.survey, &report.in_depth}) {
    for (const WorkloadReport& workload : *part) {
      for (const CertifiedToken& token : workload.certified) {
        ++tokens;
        settled += token.enclosure.rounds_to ? 1 : 0;
        missed += token.kept() ? 0 : 1;
      }
    }
  }
  if (tokens == 0) return "";
  const std::string text = fmt::format("The losses of {} were certified ({} to one double)",
                                       counted(tokens, "token", "tokens"), settled);
  if (missed == 0) return text + "; the float64 truth is within its bound of every one.";
  return text + fmt::format("; THE FLOAT64 TRUTH MISSED ITS OWN BOUND on {}.", missed);
}

}  // namespace

std::vector<std::string> depth_summary(const AuditReport& report) {
  std::vector<std::string> sentences;
  for (const WorkloadReport& workload : report.in_depth)
    for (std::string& sentence : about_workload(workload)) sentences.push_back(std::move(sentence));
  return sentences;
}

std::vector<std::string> audit_summary(const AuditReport& report) {
  std::vector<std::string> sentences{what_was_judged(report)};
  for (std::string& sentence : broken_promises(report)) sentences.push_back(std::move(sentence));
  for (std::string& sentence : depth_summary(report)) sentences.push_back(std::move(sentence));
  if (std::string sentence = about_certified(report); !sentence.empty())
    sentences.push_back(std::move(sentence));
  return sentences;
}

}  // namespace fljsd
