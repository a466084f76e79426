// SPDX-License-Identifier: Apache-2.0
// What one rank computed, and how it gets to other processes.
#pragma once

#include <string>
#include <vector>

#include "verify/candidates/cuda/rank_folder.h"

namespace fljsd {

// The contents of its outputs; empty where one was not wanted.
struct RankOutput {
  Bytes loss, token_loss, input_grad, weight_grad, bias_grad;
  bool operator==(const RankOutput&) const = default;
};

// The same as one piece, with a sentence for each rule that the rank broke; and back.
Bytes pack(const RankOutput& output, const std::vector<std::string>& violations);
void unpack(const Bytes& packed, RankOutput& output, std::vector<std::string>& violations);

}  // namespace fljsd
