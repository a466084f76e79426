// SPDX-License-Identifier: Apache-2.0
// A plan whose tokens, vocabulary or both are cut over several GPUs (fljsd_distributed.h says what that means
// to a caller).
//
//   sums over the shard (shard_sweep.h)
//     -> all-gather over the vocabulary group: one record a token and rank, merged in rank order
//     -> D and row constants of every token, the same bits on every rank
//   dlogits of the shard from them
//     -> weight gradient of the shard
//     -> input gradient over the shard, summed over the vocabulary group once, in fp32, rounded once
//   counts and sums of losses
//     -> all-gather over the token group, added in rank order
//
// T tokens of a rank, H hidden, R ranks of the vocabulary group: a rank sends 256·(R−1)·T bytes forward,
// 448·(R−1)·T + 8·(R−1)/R·T·H with gradients. Memory beside the sweep: R + 2 records a token, 4·T·H for the
// sum of an fp32 input gradient.
//
// Error budget: that of chunked-vocab; a level of merging adds 2^-48 (shard_merge.cuh), and the sum of R
// input gradients R − 1 roundings of 2^-24.
#pragma once

#include <memory>
#include <optional>

#include "cuda/communicator.h"
#include "cuda/failure.h"
#include "cuda/stage.h"
#include "cuda/workspace.h"

namespace fljsd::cuda {

// Null: that dimension is not cut. The communicators outlive the stage.
struct RankGroups {
  const Communicator* vocab = nullptr;
  const Communicator* tokens = nullptr;
  bool sum_weight_gradients = false;
  bool tokens_compared = false;  // ranks of `tokens` need not be asked: see fljsd_ranks
};

// Runs body. If it throws, some exchanges that other ranks count on may not have been enqueued here, and the
// next one would meet one of theirs that is not its counterpart: so all communicators are aborted.
template <class Body>
void run_in_step(const RankGroups& groups, const Body& body) {
  try {
    body();
  } catch (...) {
    abort_all({groups.vocab, groups.tokens});
    throw;
  }
}

// Collective. The settings of this rank's part: vocab rows, of which the first valid_vocab exist (perhaps
// none), tokens of its own. refusal: why not, when the configuration is refused here or by a rank of either
// group, or differs. Throws Failure when an exchange fails.
Settings settings_of_rank(const fljsd_config* config, const RankGroups& groups,
                          std::optional<Failure>& refusal);
// Collective. Tells both groups whether this rank refused; refusal is then set on all ranks of a grid. Throws
// as settings_of_rank().
void tell_refusal(const RankGroups& groups, std::optional<Failure>& refusal);

class Distributed final : public Stage {
 public:
  Distributed(const Settings& settings, const RankGroups& groups);
  ~Distributed() override;

  Index workspace_bytes(fljsd_pass pass) const override;
  void run(fljsd_pass pass, const Call& call) const override;
  void tune(fljsd_pass pass, const Call& call) override;
  std::string describe() const override;
  bool takes_empty_batches() const override { return true; }

  const RankGroups& groups() const { return groups_; }
  // Bytes that a pass sends from this rank.
  Index exchanged_bytes(fljsd_pass pass) const;

 private:
  struct Arrays;
  struct Parts;

  Index vocab_ranks() const { return groups_.vocab == nullptr ? 1 : groups_.vocab->ranks(); }
  Index token_ranks() const { return groups_.tokens == nullptr ? 1 : groups_.tokens->ranks(); }
  Arrays lay_out(fljsd_pass pass, Workspace& workspace, const Call* call) const;
  void enqueue(fljsd_pass pass, const Call& call) const;
  void exchange_tallies(const Call& call, const Arrays& arrays, const float* token_loss) const;
  void run_gradients(const Call& call, const Arrays& arrays) const;
  void sum_gradients_of_weight(const Call& call) const;

  Settings settings_;
  RankGroups groups_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace fljsd::cuda
