// SPDX-License-Identifier: Apache-2.0
#include "cuda/shard_sweep.h"

#include <utility>

#include "cuda/shard_kernels.h"

namespace fljsd::cuda {

ShardSweep::ShardSweep(const Settings& s, const OnePassStatistics& statistics)
    : settings_(s), statistics_(statistics) {
  // A caller who names tiles of the forward pass means those of chunked-vocab.
  if (s.chunk_tokens == 0 && s.chunk_vocab == 0) fused_.emplace(s, statistics_);
  for (const fljsd_pass pass : {FLJSD_FORWARD, FLJSD_FORWARD_BACKWARD}) {
    if (pass == FLJSD_FORWARD || s.any_grad()) tiled_[pass].emplace(s, statistics_, pass);
  }
}

void ShardSweep::prepare(const std::function<Index(fljsd_pass)>& workspace_bytes) {
  const Index budget = settings_.memory_budget;
  std::optional<FusedSweep> fused = std::exchange(fused_, std::nullopt);  // tiles first, by themselves
  const bool instead = fused && fused->obstacle().empty();
  const auto lt = std::make_shared<LtHandle>();
  for (const fljsd_pass pass : {FLJSD_FORWARD, FLJSD_FORWARD_BACKWARD}) {
    if (!tiled_[pass]) continue;
    if (instead && pass == FLJSD_FORWARD) {
      tiled_[pass]->fit(fallback_budget(settings_), [&] {
        Workspace measure(nullptr);
        tiled_[pass]->lay_out(measure);
        return measure.used();
      });
    }
    tiled_[pass]->fit(budget, [&] { return workspace_bytes(pass); });
    tiled_[pass]->prepare(lt);
  }
  fused_ = std::move(fused);
  if (is_fused()) fused_->fit(workspace_bytes(FLJSD_FORWARD));
}

ShardSweep::Arrays ShardSweep::lay_out(fljsd_pass pass, Workspace& workspace) const {
  Arrays a;
  Workspace fused = workspace;
  a.tiled = tiled_[pass]->lay_out(workspace);
  if (pass == FLJSD_FORWARD && is_fused()) {
    a.fused = fused_->lay_out(fused);
    if (fused.used() > workspace.used()) workspace = fused;
  }
  return a;
}

void ShardSweep::merge(fljsd_pass pass, const Call& call, const float* records, Index count,
                       Index first_token, Index tokens, float* out) const {
  const Index floats = statistics_.record_floats(pass);
  launch_merge_records(call.stream, statistics_.kind, basis_of(pass), statistics_.mixture,
                       statistics_.weights[pass].phase_step, {records, count, count * floats, floats}, tokens,
                       ignored_tokens(settings_, call, first_token), out + first_token * floats);
}

void ShardSweep::run_sums(fljsd_pass pass, const Call& call, const BatchArrays& batch, const Arrays& a,
                          float* out) const {
  if (!is_fused(pass, call)) {
    const OnePassState sums = tiled_[pass]->run_sums(call, batch, a.tiled);
    merge(pass, call, sums.data, sums.slices, 0, settings_.tokens, out);
    return;
  }
  fused_->run(call, batch, a.fused);
  const Index floats = statistics_.record_floats(pass);
  for (const FusedSweep::TokenGroup& g : fused_->groups())
    merge(pass, call, a.fused.records + g.record_offset * floats, g.slots, g.first_token, g.tokens, out);
}

void ShardSweep::tune(fljsd_pass pass, const Call& call, const BatchArrays& batch, const Arrays& a) {
  if (!is_fused(pass, call)) tiled_[pass]->tune(call, batch, a.tiled);
}

std::string ShardSweep::describe() const {
  std::string text = "forward: ";
  if (is_fused()) {
    text += fused_->describe() + "; tensors that do not start at multiples of 16 bytes: chunked-vocab\n";
  } else {
    const std::string why = fused_ ? fused_->obstacle() : "its tiles were asked for";
    text += "chunked-vocab, because " + why + ": " + tiled_[FLJSD_FORWARD]->describe();
  }
  const auto& backward = tiled_[FLJSD_FORWARD_BACKWARD];
  return backward ? text + "forward and backward: chunked-vocab: " + backward->describe() : text;
}

}  // namespace fljsd::cuda
