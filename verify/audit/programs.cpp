// SPDX-License-Identifier: Apache-2.0
#include "verify/audit/programs.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include <fmt/format.h>

#include "verify/audit/attribution.h"

namespace fljsd {
namespace {

// For a column of a table: of exec:COMMAND the file that it runs, or the word it begins with.
std::string short_name(const std::string& specification) {
  constexpr std::string_view prefix = "exec:";
  if (!specification.starts_with(prefix)) return specification;
  std::istringstream command(specification.substr(prefix.size()));
  std::string first, file;
  for (std::string word; command >> word;) {
    if (first.empty()) first = word;
    std::error_code ignored;
    if (std::filesystem::is_regular_file(word, ignored)) file = word;
  }
  return std::filesystem::path(file.empty() ? first : file).filename().string();
}

std::string unlike(const std::vector<std::string>& taken, const std::string& name) {
  std::string candidate = name;
  for (int number = 2; std::find(taken.begin(), taken.end(), candidate) != taken.end(); ++number)
    candidate = fmt::format("{}-{}", name, number);
  return candidate;
}

}  // namespace

Programs make_programs(std::span<const std::string> specifications, std::span<const std::string> taken,
                       double timeout) {
  std::vector<std::string> names(taken.begin(), taken.end());
  Programs programs;
  for (const std::string& specification : specifications) {
    Program program{unlike(names, short_name(specification)), make_candidate(specification, timeout)};
    program.candidate->declaration();
    names.push_back(program.name);
    programs.push_back(std::move(program));
  }
  return programs;
}

CandidateReport judge_program(const Program& program, const Case& c, const Truth& truth,
                              const Budgets& budgets, const std::vector<Index>& weight_rows) {
  const Declaration declaration = program.candidate->declaration();
  CandidateReport report;
  report.name = program.name;
  report.description = program.candidate->name();
  report.verdict.accuracy_class = declaration.accuracy_class;
  if (const FeatureSet missing = needed_features(c) & declaration.lacks; !missing.empty()) {
    report.no_answer = "lacks " + text(missing);
    return report;
  }

  Request request;
  request.token_loss = !declaration.lacks.has(Feature::token_loss);
  request.grad = !declaration.lacks.has(Feature::grad);
  Outcome outcome = program.candidate->compute(c, request);
  if (const auto* unsupported = std::get_if<Unsupported>(&outcome)) {
    report.no_answer = unsupported->text;
    return report;
  }
  if (const auto* failure = std::get_if<Failure>(&outcome)) {
    report.no_answer = fmt::format("{}: {}", name(failure->kind), failure->text);
    report.broke_down = true;
    return report;
  }
  Answer& answer = std::get<Answer>(outcome);
  if (request.grad)
    answer.result.student_weight_grad =
        RowMajorMatrix<double>(answer.result.student_weight_grad(weight_rows, Eigen::all));
  report.errors = distance(truth.result, answer.result, truth.result);
  report.verdict = judge(budgets, truth, answer.result, declaration.accuracy_class, answer.loss_format);
  return report;
}

}  // namespace fljsd
