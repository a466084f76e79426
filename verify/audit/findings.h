// SPDX-License-Identifier: Apache-2.0
// Which candidates break their class, how, and why as far as the report tells.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "verify/audit/report.h"

namespace fljsd {

// How one candidate breaks its class.
struct BrokenClass {
  std::string candidate;
  AccuracyClass accuracy_class = AccuracyClass::fp32_logits;
  std::set<std::string> not_finite;   // families where it returns NaN or infinity and the truth is finite
  const VerdictRow* worst = nullptr;  // of the other findings, and where; lives as long as the report
  std::string family;
};

// One for each candidate that breaks its class, in the order in which they are found.
std::vector<BrokenClass> broken_classes(const AuditReport& report);

// Candidates that return NaN or infinity on the same families.
struct NotFinite {
  std::vector<std::string> candidates;
  std::set<std::string> families;
  // Whole sentences, one for each cause that the candidates' arithmetic and the inputs explain.
  std::vector<std::string> causes;
};
std::vector<NotFinite> not_finite(const AuditReport& report);

// A candidate that had no answer, and why: the same for all these cases, or the first of several ways of
// breaking down.
struct NoAnswer {
  std::string candidate, why;
  bool broke_down = false;  // CandidateReport::broke_down
  std::set<std::string> families;
  int cases = 0;
};
std::vector<NoAnswer> no_answers(const AuditReport& report);

// "a", "a and b", "a, b and c"
std::string listed(const std::vector<std::string>& names);

}  // namespace fljsd
