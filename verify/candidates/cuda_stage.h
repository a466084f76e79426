// SPDX-License-Identifier: Apache-2.0
// The CUDA stages as candidates `cuda:NAME`: each case is uploaded as it lies in memory, computed twice with
// other bytes in the workspace, and the answer is what the first call returned.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "verify/candidates/candidate.h"

namespace fljsd {

// Every stage that computes a loss; none when the program was built without CUDA.
std::vector<CandidateEntry> list_cuda_candidates();

// The candidate of a stage ("unfused", without "cuda:"). Throws std::invalid_argument, one sentence, when
// there is no such stage, no CUDA in this build, or no device for it.
std::unique_ptr<Candidate> make_cuda_candidate(const std::string& stage);

}  // namespace fljsd
