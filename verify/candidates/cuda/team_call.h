// SPDX-License-Identifier: Apache-2.0
// A problem on several GPUs: cut into the ranks' parts, computed by distributed plans, put together again,
// and watched as a call on one GPU is: outputs and workspace poisoned, bytes beside them guarded, inputs
// compared.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "reference/linear_jsd.h"
#include "reference/shards.h"
#include "verify/candidates/cuda/rank_team.h"

namespace fljsd {

struct TeamRequest {
  bool gradients = true;      // of student input, weight and bias
  DType gradient_dtype = {};  // of the first two: the student's format, or f32
  // Consecutive shards, one a vocabulary rank; the last ones may be empty: such a rank is given a row that
  // does not exist, of NaN. Parts of the tokens, perhaps empty, one a token rank.
  std::vector<Shard> shards, parts;
  bool sum_weight_gradients = false;
  // Fields of a rank's configuration that are to differ.
  std::function<void(int rank, fljsd_config&)> configure = [](int, fljsd_config&) {};
};

// Shards of `rows` entries for `ranks` ranks, ragged, at least one entry each; with fewer entries than ranks,
// one each for the first ranks and none for the others.
std::vector<Shard> ragged_shards(Index rows, int ranks, std::uint64_t seed);

struct TeamOutput {
  float loss = 0;
  std::vector<float> token_loss;
  // [tokens, hidden], [vocab, hidden], [vocab], decoded; weight and bias gradients of token parts are added
  // up, unless the ranks have done that.
  RowMajorMatrix<double> input_grad, weight_grad;
  std::vector<double> bias_grad;
  std::uint64_t exchanged_bytes = 0;    // sent by this process's first rank
  std::vector<std::string> violations;  // a sentence each; empty when all is well
};

// One call, or two with other bytes in the workspace, whose results must have the same bits (`twice`). Throws
// std::runtime_error with the library's sentence; StageUnsupported for FLJSD_UNSUPPORTED.
TeamOutput call_team(const RankTeam& team, const Problem& problem, const Options& options,
                     const TeamRequest& request, bool twice = false);

}  // namespace fljsd
