// SPDX-License-Identifier: Apache-2.0
#include "verify/fuzz/json.h"
#include "verify/fuzz/render.h"

namespace fljsd {
namespace {

constexpr int schema = 1;

}  // namespace

nlohmann::ordered_json campaign_json(const CampaignReport& report, const std::string& specification) {
  const Declaration& declaration = report.declaration;
  Json lacks = Json::array(), findings = Json::array(), checks = Json::array();
  for (const Feature feature : all_features())
    if (declaration.lacks.has(feature)) lacks.push_back(name(feature));
  for (const Finding& finding : report.findings) {
    Json json = finding_json(finding);
    json["reproduce"] = reproducing_command(finding, specification);
    findings.push_back(std::move(json));
  }
  for (const CampaignCheck& check : campaign_checks())
    checks.push_back({{"name", check.name}, {"statement", check.statement}});
  return {{"schema", schema},
          {"candidate", specification},
          {"class", name(declaration.accuracy_class)},
          {"deterministic", declaration.deterministic},
          {"lacks", lacks},
          {"verdict", report.clean() ? "clean" : "convicted"},
          {"seed", report.seed},
          {"seconds", report.seconds},
          {"cases", report.cases},
          {"shrink_cases", report.shrink_cases},
          {"recipes", report.recipes},
          {"cases_per_second", report.cases_per_second()},
          {"earlier_cases", report.earlier_cases},
          {"earlier_recipes", report.earlier_recipes},
          {"resumed", report.resumed},
          {"interrupted", report.interrupted},
          {"replayed", report.replayed},
          {"doubtful", report.doubtful},
          {"findings", findings},
          {"warnings", report.warnings},
          {"coverage", coverage_json(report.coverage)},
          {"worst_ratio", numbers_json(report.worst_ratio)},
          {"worst_property_ratio", numbers_json(report.worst_property_ratio)},
          {"records", records_json(report.records)},
          {"checks", checks}};
}

}  // namespace fljsd
