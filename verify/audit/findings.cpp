// SPDX-License-Identifier: Apache-2.0
#include "verify/audit/findings.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace fljsd {
namespace {

const CandidateInfo* info_of(const AuditReport& report, const std::string& candidate) {
  const auto found = std::find_if(report.candidates.begin(), report.candidates.end(),
                                  [&](const CandidateInfo& info) { return info.name == candidate; });
  return found == report.candidates.end() ? nullptr : &*found;
}

// The families among `families` that hold what `count` counts.
template <class Count>
std::vector<std::string> families_with(const AuditReport& report, const std::set<std::string>& families,
                                       const Count& count) {
  std::set<std::string> found;
  for (const auto* part : {&report.survey, &report.in_depth})
    for (const WorkloadReport& workload : *part)
      if (families.count(workload.info.family) && count(workload.info) > 0)
        found.insert(workload.info.family);
  return {found.begin(), found.end()};
}

std::vector<std::string> causes_of(const AuditReport& report, const NotFinite& group) {
  // A pipeline that steps around 0 times infinity has some other fault.
  for (const std::string& candidate : group.candidates) {
    const CandidateInfo* info = info_of(report, candidate);
    if (!info || info->guarded) return {};
  }
  std::vector<std::string> causes;
  const auto impossible =
      families_with(report, group.families, [](const WorkloadInfo& info) { return info.impossible_entries; });
  if (!impossible.empty()) {
    causes.push_back(
        fmt::format("In {} inputs some biases are -inf, which gives vocabulary entries probability 0; the "
                    "true term p log p there is 0, but computed as 0 * (-inf) it is NaN.",
                    listed(impossible)));
  }
  const auto poisoned =
      families_with(report, group.families, [](const WorkloadInfo& info) { return info.poisoned_tokens; });
  if (!poisoned.empty()) {
    causes.push_back(
        fmt::format("In {} inputs tokens that are ignored hold NaN or infinity; these pipelines compute "
                    "their gradients all the same and multiply them by 0, which leaves NaN.",
                    listed(poisoned)));
  }
  return causes;
}

}  // namespace

std::string listed(const std::vector<std::string>& names) {
  if (names.size() < 2) return fmt::format("{}", fmt::join(names, ""));
  const std::vector<std::string> first(names.begin(), names.end() - 1);
  return fmt::format("{} and {}", fmt::join(first, ", "), names.back());
}

std::vector<BrokenClass> broken_classes(const AuditReport& report) {
  std::vector<BrokenClass> all;
  for (const auto* part : {&report.survey, &report.in_depth}) {
    for (const WorkloadReport& workload : *part) {
      for (const CandidateReport& candidate : workload.candidates) {
        const VerdictRow* row = candidate.verdict.worst();
        if (candidate.verdict.pass() || !row) continue;  // who broke down has no rows: no_answers()
        auto found = std::find_if(all.begin(), all.end(),
                                  [&](const BrokenClass& f) { return f.candidate == candidate.name; });
        if (found == all.end())
          found = all.insert(all.end(), {candidate.name, candidate.verdict.accuracy_class, {}, nullptr, ""});
        if (std::isinf(row->error)) {
          found->not_finite.insert(workload.info.family);
        } else if (!found->worst || row->ratio > found->worst->ratio) {
          found->worst = row;
          found->family = workload.info.family;
        }
      }
    }
  }
  return all;
}

std::vector<NoAnswer> no_answers(const AuditReport& report) {
  std::vector<NoAnswer> all;
  for (const auto* part : {&report.survey, &report.in_depth}) {
    for (const WorkloadReport& workload : *part) {
      for (const CandidateReport& candidate : workload.candidates) {
        if (candidate.no_answer.empty()) continue;
        auto found = std::find_if(all.begin(), all.end(), [&](const NoAnswer& n) {
          return n.candidate == candidate.name && n.broke_down == candidate.broke_down &&
                 (n.why == candidate.no_answer || n.broke_down);
        });
        if (found == all.end())
          found = all.insert(all.end(), {candidate.name, candidate.no_answer, candidate.broke_down, {}, 0});
        found->families.insert(workload.info.family);
        ++found->cases;
      }
    }
  }
  return all;
}

std::vector<NotFinite> not_finite(const AuditReport& report) {
  std::vector<NotFinite> groups;
  for (const BrokenClass& finding : broken_classes(report)) {
    if (finding.not_finite.empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const NotFinite& g) { return g.families == finding.not_finite; });
    if (group == groups.end()) group = groups.insert(groups.end(), {{}, finding.not_finite, {}});
    group->candidates.push_back(finding.candidate);
  }
  for (NotFinite& group : groups) group.causes = causes_of(report, group);
  return groups;
}

}  // namespace fljsd
