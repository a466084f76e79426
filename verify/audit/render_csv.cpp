// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <fmt/format.h>

#include "verify/audit/render.h"

namespace fljsd {
namespace {

// Shortest digits that read back as the same double; "nan", "inf" and "-inf" as they are; empty if absent.
std::string field(const std::optional<double>& value) {
  if (!value) return "";
  return std::isnan(*value) ? "nan" : fmt::format("{}", *value);
}

// Quoted where commas or quotes demand it (RFC 4180).
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\n") == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

void add_rows(std::string& csv, const char* part, const WorkloadReport& workload) {
  const WorkloadInfo& info = workload.info;
  const std::string inputs =
      fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}", part, info.family, info.tokens, info.judged_tokens,
                  info.student_hidden, info.teacher_hidden, info.vocab, info.dtype, field(info.strength),
                  info.beta, info.temperature, info.seed);
  for (const CandidateReport& candidate : workload.candidates) {
    if (!candidate.no_answer.empty())
      csv += fmt::format("{},no-answer,{},{},,,{},,,,,,,0,{}\n", inputs, field(candidate.name),
                         name(candidate.verdict.accuracy_class), field(candidate.no_answer),
                         candidate.pass() ? 1 : 0);
    for (const VerdictRow& row : candidate.verdict.rows) {
      csv += fmt::format("{},verdict,{},{},,{},{},{},{},{},,{},{},{},{}\n", inputs, field(candidate.name),
                         name(candidate.verdict.accuracy_class), row.quantity, field(row.measure),
                         field(row.error), field(row.budget), field(row.ratio), field(row.zero_error),
                         field(row.bf16_budget), row.judged ? 1 : 0, row.pass ? 1 : 0);
    }
  }
  for (const Attribution& attribution : workload.attributions) {
    for (const AttributionStep& step : attribution.steps) {
      const auto add = [&](const char* quantity, const char* measure, std::optional<double> total,
                           std::optional<double> added, std::optional<double> zero) {
        csv += fmt::format("{},attribution,{},,{},{},{},{},,,{},{},,,\n", inputs,
                           field(attribution.candidate), field(step.name), quantity,
                           field(std::string(measure)), field(total), field(added), field(zero));
      };
      add("loss", "relative", step.total.loss, step.added.loss, workload.zero.loss);
      add("token_loss", "worst absolute", step.total.token_loss, step.added.token_loss,
          workload.zero.token_loss);
      add("student_input_grad", "relative L2", step.total.student_input_grad, step.added.student_input_grad,
          workload.zero.student_input_grad);
      add("student_input_grad", "median token, relative L2", step.total.median_token_grad,
          step.added.median_token_grad, workload.zero.median_token_grad);
      add("student_weight_grad", "relative L2", step.total.student_weight_grad,
          step.added.student_weight_grad, workload.zero.student_weight_grad);
    }
  }
}

}  // namespace

std::string audit_csv(const AuditReport& report) {
  std::string csv =
      "part,family,tokens,judged_tokens,student_hidden,teacher_hidden,vocab,dtype,strength,beta,temperature,"
      "seed,"
      "record,candidate,class,step,quantity,measure,error,budget,ratio,added,zero_error,bf16_budget,judged,"
      "pass\n";
  for (const WorkloadReport& workload : report.survey) add_rows(csv, "survey", workload);
  for (const WorkloadReport& workload : report.in_depth) add_rows(csv, "in-depth", workload);
  return csv;
}

}  // namespace fljsd
