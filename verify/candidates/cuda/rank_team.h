// SPDX-License-Identifier: Apache-2.0
// Ranks in one process: a thread and a GPU each, in a grid of vocabulary shards by token parts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cuda/fljsd_distributed.h"

namespace fljsd {

// How many GPUs this process sees; 0 without a driver.
int count_gpus();
// How many ranks it can have: as many as GPUs. With the environment variable FLJSD_RANKS_SHARE_GPUS set, any
// number, rank r on GPU r mod GPUs: for tests against a stand-in for NCCL, which itself refuses that.
int most_ranks();

// `vocab` ranks share the vocabulary of each token part, `tokens` ranks the tokens of each shard; rank r has
// shard r mod vocab and token part r div vocab, and GPU r.
struct RankGrid {
  int vocab = 1, tokens = 1;
  bool communicates_alone = false;  // a dimension of one rank has a communicator too
  int ranks() const { return vocab * tokens; }
};

class RankTeam {
 public:
  // Makes the communicators that the grid needs. Throws std::runtime_error, one sentence, when there are too
  // few GPUs or no NCCL.
  explicit RankTeam(const RankGrid& grid, std::int64_t timeout_ms = 60'000);
  ~RankTeam();
  RankTeam(const RankTeam&) = delete;
  RankTeam& operator=(const RankTeam&) = delete;

  const RankGrid& grid() const { return grid_; }
  std::int64_t timeout_ms() const { return timeout_ms_; }
  fljsd_ranks ranks_of(int rank) const;

  // Calls body(rank) on a thread of every rank, its GPU current; waits for all. An exception of the lowest
  // rank that has one is thrown again.
  void run(const std::function<void(int rank)>& body) const;

 private:
  RankGrid grid_;
  std::int64_t timeout_ms_;
  std::vector<fljsd_communicator*> vocab_, tokens_;  // of each rank; null where that dimension is not cut
};

}  // namespace fljsd
