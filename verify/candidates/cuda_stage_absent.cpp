// SPDX-License-Identifier: Apache-2.0
// In place of cuda_stage.cpp and vocab_parallel.cpp in a build without CUDA.
#include <stdexcept>

#include "verify/candidates/cuda_stage.h"
#include "verify/candidates/vocab_parallel.h"

namespace fljsd {

std::vector<CandidateEntry> list_cuda_candidates() {
  return {};
}

std::unique_ptr<Candidate> make_cuda_candidate(const std::string& stage) {
  throw std::invalid_argument("candidate is 'cuda:" + stage +
                              "', but this program was built without the CUDA stages: that takes a CUDA "
                              "toolkit and -DFLJSD_CUDA=ON.");
}

CandidateEntry vocab_parallel_entry() {
  return {};
}

std::unique_ptr<Candidate> make_vocab_parallel_candidate() {
  return make_cuda_candidate("vocab-parallel");
}

}  // namespace fljsd
