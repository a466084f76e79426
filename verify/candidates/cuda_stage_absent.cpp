// SPDX-License-Identifier: Apache-2.0
// In place of cuda_stage.cpp in a build without CUDA.
#include <stdexcept>

#include "verify/candidates/cuda_stage.h"

namespace fljsd {

std::vector<CandidateEntry> list_cuda_candidates() {
  return {};
}

std::unique_ptr<Candidate> make_cuda_candidate(const std::string& stage) {
  throw std::invalid_argument("candidate is 'cuda:" + stage +
                              "', but this program was built without the CUDA stages: that takes a CUDA "
                              "toolkit and -DFLJSD_CUDA=ON.");
}

}  // namespace fljsd
