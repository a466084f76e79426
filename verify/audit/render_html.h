// SPDX-License-Identifier: Apache-2.0
// The sections of an audit's page, in their order. Each is empty where the report has nothing for it.
#pragma once

#include "verify/audit/render_html_parts.h"

namespace fljsd::html {

// Whether the audit passes, who breaks what and why, what the truth is.
Markup verdict_header(const AuditReport& report);
// Every candidate: its class, its verdict, its worst test ratio.
Markup candidates_section(const AuditReport& report);
// Test ratios and errors of every input family.
Markup ratios_section(const AuditReport& report);
Markup errors_section(const AuditReport& report);
Markup tokens_section(const AuditReport& report);
// One workload in depth: errors, histograms, what each rounding step adds, certified tokens.
Markup depth_section(const WorkloadReport& workload, std::size_t position);
Markup waterfalls(const WorkloadReport& workload);
Markup certified_tokens(const WorkloadReport& workload);
// The formats in which every candidate keeps its values.
Markup rounding_section(const AuditReport& report);
// What the words on the page mean.
Markup terms_section();
Markup record_section(const RunRecord& run);

const char* style_sheet();

}  // namespace fljsd::html
