// SPDX-License-Identifier: Apache-2.0
// Ranks on GPUs of one machine, in a grid of vocabulary shards by token parts: threads of this process, or
// processes of which this is one (rank_folder.h says when).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cuda/fljsd_distributed.h"
#include "verify/candidates/cuda/rank_folder.h"

namespace fljsd {

// How many GPUs this process sees; 0 without a driver.
int count_gpus();
// For tests against a stand-in for NCCL, which itself refuses it, all ranks can share GPU 0: the environment
// variable FLJSD_RANKS_SHARE_A_GPU says so, and how many ranks a candidate has. 0 where it is not set. Throws
// std::runtime_error, one sentence, for anything but a number in [2, most_ranks_that_share].
constexpr int most_ranks_that_share = 64;
int ranks_that_share();
// How many ranks this process can have: as many as GPUs, or most_ranks_that_share.
int most_ranks();

// `vocab` ranks share the vocabulary of each token part, `tokens` ranks the tokens of each shard; rank r has
// shard r mod vocab and token part r div vocab, and GPU r unless they share one.
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

  // The ranks that are threads of this process: all, or one.
  std::vector<int> local_ranks() const;
  // Calls body(rank) on a thread of every local rank, its GPU current; waits for all. An exception of the
  // lowest rank that has one is thrown again.
  void run(const std::function<void(int rank)>& body) const;
  // of_rank: what local ranks have to say to all processes, by rank; empty for the others, which it fills in.
  void tell(std::vector<Bytes>& of_rank) const;

 private:
  bool is_processes() const;

  RankGrid grid_;
  std::int64_t timeout_ms_;
  std::vector<fljsd_communicator*> vocab_, tokens_;  // of each rank; null where that dimension is not cut
};

}  // namespace fljsd
