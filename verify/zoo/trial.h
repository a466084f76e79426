// SPDX-License-Identifier: Apache-2.0
// One fault before the engine: convicted of what, after how many evaluations, and by how small a case.
#pragma once

#include <optional>

#include "verify/fuzz/campaign.h"
#include "verify/zoo/fault.h"

namespace fljsd::zoo {

// A fault must be convicted within so many evaluations.
inline constexpr Cases conviction_limit = 2000;

// Campaigns with these seeds, so that a conviction is not luck.
inline constexpr std::uint64_t trial_seeds[] = {1, 2, 3};

// The first finding of a campaign against the fault; nothing if it was acquitted.
std::optional<Finding> put_on_trial(const Fault& fault, std::uint64_t seed, const ShrinkLimits& shrink = {});

}  // namespace fljsd::zoo
