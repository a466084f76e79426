// SPDX-License-Identifier: Apache-2.0
// A campaign as JSON: what it exercised, its records and findings. The state file and the report share these
// parts.
#pragma once

#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "verify/fuzz/campaign.h"

namespace fljsd {

using Json = nlohmann::ordered_json;

Json coverage_json(const Coverage& coverage);
Json records_json(const std::map<std::string, std::map<std::string, RecordHolder>>& records);
Json numbers_json(const std::map<std::string, double>& numbers);
Json finding_json(const Finding& finding);

// The inverses. They throw nlohmann::json::exception, std::invalid_argument or InvalidProblem for anything
// that the functions above never write.
Coverage coverage_from(const Json& json);
std::map<std::string, std::map<std::string, RecordHolder>> records_from(const Json& json);
std::map<std::string, double> numbers_from(const Json& json);

}  // namespace fljsd
