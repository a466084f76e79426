// SPDX-License-Identifier: Apache-2.0
// What the parts of an audit's text have in common.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/audit/report.h"
#include "verify/report/table.h"

namespace fljsd {

// A heading with an empty line before it.
std::string section(const std::string& title);
// Indented by two columns and wrapped.
std::string paragraph(const std::string& text, int width);

// `first`, then a column for each candidate.
std::vector<std::string> candidate_headings(const std::vector<std::string>& candidates,
                                            const std::string& first);

// Errors relative to the truth: at least 1 is no better than an answer of zeros.
Style error_style(double relative_error);
Cell error_cell(const std::optional<double>& relative_error);
// An error that is not relative, so that nothing says whether it is large.
Cell plain_cell(const std::optional<double>& error);

// One workload in depth. `explain` adds what the columns mean.
std::string depth_text(const WorkloadReport& workload, bool explain, int width);

}  // namespace fljsd
