// SPDX-License-Identifier: Apache-2.0
// The twins without a fault before a long campaign: an engine that convicts the innocent
// once in ten thousand evaluations wastes an afternoon of somebody's.
#include <algorithm>
#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include "verify/fuzz/campaign.h"
#include "verify/zoo/fault.h"

namespace fljsd::zoo {

// Otherwise CTest's names would hold the bytes of a Fault, addresses included.
void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.about.name;
}

namespace {

class ZooTwin : public testing::TestWithParam<Fault> {};

TEST_P(ZooTwin, IsAcquittedAfter20000Evaluations) {
  CampaignOptions options;
  options.seed = 20000;
  options.cases = 20000;
  options.seconds = 1e9;  // evaluations are the only limit
  options.stop_at_first_finding = true;
  const CampaignReport report = run_campaign(*make(GetParam()), options);
  for (const Finding& finding : report.findings)
    ADD_FAILURE() << finding.kind.text() << ": " << finding.text << "\n" << to_text(finding.recipe);
  EXPECT_GE(report.cases, 20000);
}

INSTANTIATE_TEST_SUITE_P(Zoo, ZooTwin, testing::ValuesIn(correct_twins().begin(), correct_twins().end()),
                         [](const testing::TestParamInfo<Fault>& twin) {
                           std::string name(twin.param.about.name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace fljsd::zoo
