// SPDX-License-Identifier: Apache-2.0
#include "verify/zoo/trial.h"

#include <limits>

namespace fljsd::zoo {

std::optional<Finding> put_on_trial(const Fault& fault, std::uint64_t seed, const ShrinkLimits& shrink) {
  CampaignOptions options;
  options.seed = seed;
  options.cases = conviction_limit;
  options.seconds = std::numeric_limits<double>::max();  // evaluations are the only limit
  options.shrink = shrink;
  options.stop_at_first_finding = true;
  const CampaignReport report = run_campaign(*make(fault), options);
  if (report.findings.empty()) return std::nullopt;
  return report.findings.front();
}

}  // namespace fljsd::zoo
