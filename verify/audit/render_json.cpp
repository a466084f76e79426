// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "verify/audit/render.h"
#include "verify/report/number.h"

namespace fljsd {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const WorkloadReport& workload);

Json to_json(const std::optional<double>& value) {
  return value ? json_number(*value) : Json();
}

Json to_json(const RunRecord& run) {
  return {{"command", run.command},
          {"date", run.date},
          {"version", run.version},
          {"commit", run.commit},
          {"compiler", run.compiler},
          {"build_type", run.build_type},
          {"libraries", run.libraries},
          {"system", run.system},
          {"cpu", run.cpu},
          {"threads", run.threads},
          {"seed", run.seed},
          {"seconds", json_number(run.seconds)},
          {"peak_memory_bytes", run.peak_memory}};
}

Json to_json(const CandidateInfo& info) {
  Json places = Json::object();
  for (const RoundingPlace& place : info.places)
    places[place.place] = place.format.empty() ? Json() : Json(place.format);
  return {{"name", info.name},
          {"description", info.description},
          {"class", name(info.accuracy_class)},
          {"formula", info.formula},
          {"keeps_in", std::move(places)},
          {"weight_grad_summed_over_chunks", info.chunked_weight_grad},
          {"steps_around_0_times_infinity", info.guarded},
          {"is_model", info.is_model}};
}

Json to_json(const WorkloadInfo& info) {
  return {{"family", info.family},
          {"family_number", info.family_number},
          {"tokens", info.tokens},
          {"judged_tokens", info.judged_tokens},
          {"student_hidden", info.student_hidden},
          {"teacher_hidden", info.teacher_hidden},
          {"vocab", info.vocab},
          {"judged_weight_rows", info.weight_rows},
          {"dtype", info.dtype},
          {"strength", to_json(info.strength)},
          {"beta", info.beta},
          {"temperature", info.temperature},
          {"seed", info.seed},
          {"biases_of_minus_infinity", info.impossible_entries},
          {"ignored_tokens_not_finite", info.poisoned_tokens}};
}

Json to_json(const Errors& errors) {
  return {{"loss_relative", to_json(errors.loss)},
          {"token_loss_worst_absolute", to_json(errors.token_loss)},
          {"student_input_grad_relative_l2", to_json(errors.student_input_grad)},
          {"student_input_grad_median_token_relative_l2", to_json(errors.median_token_grad)},
          {"student_weight_grad_relative_l2", to_json(errors.student_weight_grad)}};
}

Json to_json(const CandidateReport& candidate) {
  return {{"name", candidate.name},
          {"description", candidate.description},
          {"no_answer", candidate.no_answer.empty() ? Json() : Json(candidate.no_answer)},
          {"broke_down", candidate.broke_down},
          {"errors", to_json(candidate.errors)},
          {"verdict", to_json(candidate.verdict)}};
}

Json to_json(const Attribution& attribution) {
  Json steps = Json::array();
  for (const AttributionStep& step : attribution.steps) {
    steps.push_back({{"step", step.name},
                     {"does", step.does},
                     {"same_as_float64", step.same_as_before},
                     {"added", to_json(step.added)},
                     {"total", to_json(step.total)}});
  }
  return {{"candidate", attribution.candidate}, {"steps", std::move(steps)}};
}

Json to_json(const CertifiedToken& token) {
  return {{"token", token.token},
          {"lo", token.enclosure.lo_text},
          {"hi", token.enclosure.hi_text},
          {"rounds_to", to_json(token.enclosure.rounds_to)},
          {"double_tier", json_number(token.double_tier)},
          {"double_tier_error", json_number(token.error)},
          {"double_tier_bound", json_number(token.bound)},
          {"kept", token.kept()}};
}

Json to_json(const std::optional<TensorCoreLogits>& logits) {
  if (!logits) return nullptr;
  return {{"logits", logits->logits},
          {"error", json_number(logits->error)},
          {"bound_of_what_was_dropped", json_number(logits->dropped)},
          {"a_priori_bound", json_number(logits->a_priori)},
          {"error_over_dropped", json_number(logits->error_over_dropped)},
          {"error_over_a_priori", json_number(logits->error_over_a_priori)},
          {"kept", logits->kept()}};
}

template <class Item>
Json list(const std::vector<Item>& items) {
  Json array = Json::array();
  for (const Item& item : items) array.push_back(to_json(item));
  return array;
}

Json to_json(const WorkloadReport& workload) {
  return {{"workload", to_json(workload.info)},
          {"true_loss", to_json(workload.true_loss)},
          {"zero_answer", to_json(workload.zero)},
          {"candidates", list(workload.candidates)},
          {"attribution", list(workload.attributions)},
          {"certified", list(workload.certified)},
          {"tensor_core_logits", to_json(workload.tensor_core)},
          {"seconds", json_number(workload.seconds)}};
}

}  // namespace

Json audit_json(const AuditReport& report) {
  return {{"schema", AuditReport::schema},
          {"run", to_json(report.run)},
          {"pass", report.pass()},
          {"summary", audit_summary(report)},
          {"candidates", list(report.candidates)},
          {"survey", list(report.survey)},
          {"in_depth", list(report.in_depth)}};
}

}  // namespace fljsd
