// SPDX-License-Identifier: Apache-2.0
// What the registry says of the CUDA stages, with and without CUDA in the build, with and without a device.
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "verify/candidates/cuda_stage.h"

namespace fljsd {
namespace {

std::string refusal(const std::string& specification) {
  try {
    make_candidate(specification);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

// Catches: a stage that is missing from the registry, or a baseline without losses in it.
TEST(CudaCandidate, EveryStageWithALossIsListed) {
  std::string listed;
  for (const CandidateEntry& entry : list_candidates()) listed += entry.name + '\n';
  for (const CandidateEntry& stage : list_cuda_candidates()) {
    EXPECT_EQ(stage.name.rfind("cuda:", 0), 0u);
    EXPECT_NE(stage.name, "cuda:gemm");
    EXPECT_GT(stage.description.size(), 20u);
    EXPECT_NE(listed.find(stage.name + '\n'), std::string::npos);
  }
}

// Catches: a crash, or a sentence that names neither the candidate nor the reason.
TEST(CudaCandidate, SaysWhyItIsNotThere) {
  const std::string unknown = refusal("cuda:no-such-stage");
  EXPECT_NE(unknown.find("cuda:no-such-stage"), std::string::npos);
  const std::string what = refusal("cuda:unfused");
  if (list_cuda_candidates().empty()) {
    EXPECT_NE(unknown.find("without the CUDA stages"), std::string::npos) << unknown;
    EXPECT_NE(what.find("without the CUDA stages"), std::string::npos) << what;
  } else {
    EXPECT_NE(unknown.find("cuda:unfused"), std::string::npos) << unknown;  // lists what exists
    if (!what.empty()) {                                                    // there is no device
      EXPECT_NE(what.find("cuda:unfused"), std::string::npos) << what;
      EXPECT_NE(what.find("device"), std::string::npos) << what;
    }
  }
}

}  // namespace
}  // namespace fljsd
