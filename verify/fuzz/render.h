// SPDX-License-Identifier: Apache-2.0
// A campaign's report for people and for programs.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "verify/fuzz/campaign.h"

namespace fljsd {

// The whole report as text for a terminal of `width` columns. `specification` is the candidate as it was
// named on the command line, for the commands that reproduce findings.
std::string campaign_text(const CampaignReport& report, const std::string& specification, int width);

// One finding: what was got, the truth, the minimal recipe, its file, and one line that reproduces it.
std::string finding_text(const Finding& finding, std::size_t number, const std::string& specification,
                         int width);

// The line: `fljsd fuzz --candidate '...' --property accuracy --recipe '...'`, or the search that met it
// where the recipe alone does not fail.
std::string reproducing_command(const Finding& finding, const std::string& specification);

// {"schema": 1, ...}.
nlohmann::ordered_json campaign_json(const CampaignReport& report, const std::string& specification);

}  // namespace fljsd
