// SPDX-License-Identifier: Apache-2.0
// One pass over a range of the vocabulary whose logits exist in registers only (hopper/sweep.cuh): where it
// serves, which tiles it takes, and its launches. The sweep of the fused stages, whose range is the whole
// vocabulary, and of a rank, whose range is its shard. It leaves records of sums of every token, forward.
//
// T tokens, S entries of the range, H hidden. FLOPs 4·T·S·H. Bytes: the weights, 4·S·H, once for every 2816
// tokens or less; nothing of size T·S. Memory: records, 6 to 66 a token, of 256 bytes (16 in two passes).
#pragma once

#include <string>
#include <vector>

#include "cuda/batch.h"
#include "cuda/hopper/sweep.h"
#include "cuda/one_pass_statistics.h"

namespace fljsd::cuda {

// Bytes that chunked-vocab may have where it serves calls that the fused sweep does not, if the caller allows
// as many: cuBLASLt's workspace, biases in fp32, and tiles that are hardly slower than larger ones.
inline Index fallback_budget(const Settings& settings) {
  return 28'000'000 + 4096 * settings.tokens + 8 * settings.vocab;
}

class FusedSweep {
 public:
  // One pass: its sums are those of the statistics. Two: where rows are normalised, then D by its definition
  // (hopper/exact_sums.cuh); 0 < beta < 1 only.
  enum class Passes { one, two };

  // settings: tokens > 0; valid_vocab > 0, the entries of the range.
  FusedSweep(const Settings& settings, const OnePassStatistics& statistics, Passes passes = Passes::one);

  // Why the sweep cannot serve the plan, as the end of a sentence; empty if it can.
  const std::string& obstacle() const { return obstacle_; }
  // Declines if workspace_bytes, of which its arrays are a part, is more than memory_budget.
  void fit(Index workspace_bytes);
  // Whether it can serve a call: the plan has no obstacle, and these tensors have none either.
  bool serves(const fljsd_tensors& tensors) const;

  struct Arrays {
    unsigned* marks = nullptr;  // [groups]
    float* records = nullptr;   // of all groups, one after the other
  };
  Arrays lay_out(Workspace& workspace) const;

  // A group of tokens whose records have the same form.
  struct TokenGroup {
    Index first_token, tokens;
    Index slots;          // records of a token, one after the other
    Index record_offset;  // records before the group's first one
  };
  std::vector<TokenGroup> groups() const;

  // The only sweep of one pass: records of state_floats(kind, Basis::twelve) floats.
  void run(const Call& call, const BatchArrays& batch, const Arrays& arrays) const;
  // One of two passes, whose record has hopper::normaliser_record or terms_record floats. `references`: of
  // all tokens, for the terms.
  void run(const Call& call, const BatchArrays& batch, const Arrays& arrays, hopper::SweepSums sums,
           const RowReference* references) const;

  // Begins after "forward: "; one line, without its end.
  std::string describe() const;

 private:
  std::string find_obstacle() const;
  void plan_tiles();
  hopper::SweepKind kind_of(hopper::SweepSums sums) const;
  Index record_floats() const;
  hopper::SweepMaps maps(const fljsd_tensors& tensors) const;

  Settings settings_;
  OnePassStatistics statistics_;
  std::vector<hopper::SweepSums> sweeps_;  // one, or two after one another
  hopper::TileOrder order_;
  std::string obstacle_;
};

}  // namespace fljsd::cuda
