// SPDX-License-Identifier: Apache-2.0
#include "verify/fuzz/json.h"

#include "verify/report/number.h"

namespace fljsd {
namespace {

using Counts = std::map<std::string, Index>;
using Table = std::map<std::string, Counts>;

Json path_json(const std::optional<std::filesystem::path>& path) {
  return path ? Json(path->string()) : Json();
}

Json sizes_json(const Recipe& recipe) {
  const CaseSpec& spec = recipe.spec;
  return {{"tokens", spec.tokens},
          {"student_hidden", spec.student_hidden},
          {"teacher_hidden", spec.teacher_hidden != 0 ? spec.teacher_hidden : spec.student_hidden},
          {"vocab", spec.vocab}};
}

}  // namespace

Json coverage_json(const Coverage& coverage) {
  return {{"family_property", coverage.family_property},
          {"feature_property", coverage.feature_property},
          {"family_feature", coverage.family_feature},
          {"not_applicable", coverage.not_applicable},
          {"skipped", coverage.skipped}};
}

Coverage coverage_from(const Json& json) {
  return {json.at("family_property").get<Table>(), json.at("feature_property").get<Table>(),
          json.at("family_feature").get<Table>(), json.at("not_applicable").get<Counts>(),
          json.at("skipped").get<Counts>()};
}

Json records_json(const std::map<std::string, std::map<std::string, RecordHolder>>& records) {
  Json json = Json::object();
  for (const auto& [family, holders] : records)
    for (const auto& [quantity, holder] : holders)
      json[family][quantity] = {{"ratio", json_number(holder.ratio)},
                                {"error", json_number(holder.error)},
                                {"budget", json_number(holder.budget)},
                                {"recipe", to_text(holder.recipe)}};
  return json;
}

std::map<std::string, std::map<std::string, RecordHolder>> records_from(const Json& json) {
  std::map<std::string, std::map<std::string, RecordHolder>> records;
  for (const auto& [family, holders] : json.items())
    for (const auto& [quantity, holder] : holders.items())
      records[family][quantity] = {number_from_json(holder.at("ratio")), number_from_json(holder.at("error")),
                                   number_from_json(holder.at("budget")),
                                   parse_recipe(holder.at("recipe").get<std::string>())};
  return records;
}

Json numbers_json(const std::map<std::string, double>& numbers) {
  Json json = Json::object();
  for (const auto& [name, number] : numbers) json[name] = json_number(number);
  return json;
}

std::map<std::string, double> numbers_from(const Json& json) {
  std::map<std::string, double> numbers;
  for (const auto& [name, number] : json.items()) numbers[name] = number_from_json(number);
  return numbers;
}

Json finding_json(const Finding& finding) {
  Json json{{"property", finding.kind.property},      {"quantity", finding.kind.quantity},
            {"manner", finding.kind.manner},          {"text", finding.text},
            {"recipe", to_text(finding.recipe)},      {"sizes", sizes_json(finding.recipe)},
            {"first_recipe", to_text(finding.first)}, {"observed", json_number(finding.observed)},
            {"allowed", json_number(finding.allowed)}};
  if (const auto& value = finding.value) {
    json["value"] = {{"what", value->what},
                     {"got", json_number(value->got)},
                     {"got_hex", hex_float(value->got)},
                     {"truth", json_number(value->truth)},
                     {"truth_hex", hex_float(value->truth)},
                     {"allowed", json_number(value->allowed)},
                     {"certified", value->certified}};
  }
  json.update({{"diagnostics", finding.diagnostics},
               {"cases_until", finding.cases_until},
               {"shrink_cases", finding.shrink_cases},
               {"minimal", finding.minimal},
               {"reproduced", finding.reproduced},
               {"replayed", finding.replayed},
               {"repeats", finding.repeats},
               {"file", path_json(finding.file)},
               {"case_file", path_json(finding.case_file)}});
  return json;
}

}  // namespace fljsd
