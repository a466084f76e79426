// SPDX-License-Identifier: Apache-2.0
// An audit's report for people and for programs. Nothing here computes.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "verify/audit/report.h"

namespace fljsd {

// For a terminal of `width` columns (at least 80 look right).
std::string audit_text(const AuditReport& report, int width);

// Everything, with "schema"; numbers that are not finite are strings.
nlohmann::ordered_json audit_json(const AuditReport& report);

// One line for each workload, candidate and quantity, and one for each step of an attribution.
std::string audit_csv(const AuditReport& report);

// What was judged and what was found, each a plain sentence made from the numbers.
std::vector<std::string> audit_summary(const AuditReport& report);
// Of these sentences, those about the workloads in depth.
std::vector<std::string> depth_summary(const AuditReport& report);

// One self-contained page: no network, no script. XHTML as well as HTML5.
std::string audit_html(const AuditReport& report);

}  // namespace fljsd
