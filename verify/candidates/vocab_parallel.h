// SPDX-License-Identifier: Apache-2.0
// The candidate `cuda:vocab-parallel`: the vocabulary of each case cut into ragged shards, one for every GPU
// of this machine, computed by distributed plans in one process.
#pragma once

#include <memory>

#include "verify/candidates/candidate.h"

namespace fljsd {

CandidateEntry vocab_parallel_entry();

// Throws std::invalid_argument, one sentence, when this build or this machine cannot run it: it takes NCCL
// and two GPUs.
std::unique_ptr<Candidate> make_vocab_parallel_candidate();

}  // namespace fljsd
