// SPDX-License-Identifier: Apache-2.0
// One rank's share of the work, without its peers: sums over the entries of its shard of the vocabulary, one
// record a token, and the gradients that the shard's dlogits lead to once the row constants of the whole
// vocabulary are known.
//
// Forward the fused sweep serves, where it can (fused_sweep.h), otherwise tiles of logits in memory
// (tiled_sweep.h). With gradients it is always the latter: they need statistics of 47 sums, which are too
// many for the fused sweep's registers. Either leaves records of the same form, so ranks need not agree.
#pragma once

#include <optional>
#include <string>

#include "cuda/fused_sweep.h"
#include "cuda/tiled_sweep.h"

namespace fljsd::cuda {

class ShardSweep {
 public:
  // settings: valid_vocab > 0 entries of the shard, tokens > 0.
  ShardSweep(const Settings& settings, const OnePassStatistics& statistics);

  struct Arrays {
    TiledSweep::Arrays tiled;  // with gradients its constants are to be filled in between
    FusedSweep::Arrays fused;  // forward, in the same place: a call takes one sweep or the other
  };
  Arrays lay_out(fljsd_pass pass, Workspace& workspace) const;
  // Meets settings.memory_budget with the workspace of the plan that the sweep is a part of, and makes the
  // products.
  void prepare(const std::function<Index(fljsd_pass)>& workspace_bytes);

  // The sums of every token over the shard, one record each, into `out` [tokens, record_floats].
  void run_sums(fljsd_pass pass, const Call& call, const BatchArrays& batch, const Arrays& arrays,
                float* out) const;
  // After run_sums() of the backward pass, with the constants filled in: see TiledSweep.
  void run_gradients(const Call& call, const BatchArrays& batch, const Arrays& arrays, bool is_whole) const {
    tiled_[FLJSD_FORWARD_BACKWARD]->run_gradients(call, batch, arrays.tiled, is_whole);
  }
  // After a complete run of the pass; synchronises.
  void tune(fljsd_pass pass, const Call& call, const BatchArrays& batch, const Arrays& arrays);
  std::string describe() const;

 private:
  // Whether the fused sweep serves the forward pass of the plan.
  bool is_fused() const { return fused_ && fused_->obstacle().empty(); }
  bool is_fused(fljsd_pass pass, const Call& call) const {
    return pass == FLJSD_FORWARD && is_fused() && fused_->serves(call.tensors);
  }
  // Records of some tokens -> one record each.
  void merge(fljsd_pass pass, const Call& call, const float* records, Index count, Index first_token,
             Index tokens, float* out) const;

  Settings settings_;
  OnePassStatistics statistics_;
  std::optional<FusedSweep> fused_;     // unless tiles were asked for
  std::optional<TiledSweep> tiled_[2];  // by pass
};

}  // namespace fljsd::cuda
