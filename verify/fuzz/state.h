// SPDX-License-Identifier: Apache-2.0
// How far a campaign has come, kept in its corpus folder so that a killed one goes on.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "verify/fuzz/campaign.h"

namespace fljsd {

struct CampaignState {
  Index recipes = 0;  // of the random sequence, done
  Cases cases = 0;
  Coverage coverage;
  std::map<std::string, std::map<std::string, RecordHolder>> records;
  std::map<std::string, double> worst_ratio, worst_property_ratio;
  // What had failed, and would again: kind and recipe. A candidate that passes one of them now is another
  // one.
  std::vector<std::pair<FindingKind, Recipe>> failed;
};

// The state file of a campaign: its name follows from the candidate, the seed, and all that decides which
// recipes are drawn and what is checked.
std::filesystem::path state_file(const std::filesystem::path& corpus, const std::string& candidate,
                                 const CampaignOptions& options);

// Nothing if there is no such file. Throws FileError, one sentence, for one that is broken.
std::optional<CampaignState> read_state(const std::filesystem::path& path);

// Replaces the file in one step. Throws FileError.
void write_state(const std::filesystem::path& path, const CampaignState& state);

}  // namespace fljsd
