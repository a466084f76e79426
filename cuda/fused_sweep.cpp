// SPDX-License-Identifier: Apache-2.0
#include "cuda/fused_sweep.h"

#include <algorithm>
#include <limits>

#include "cuda/hopper/tensor_map.h"

namespace fljsd::cuda {
namespace {

using hopper::Group;
using hopper::SweepSums;

// Most blocks of 256 tokens of a group: as many as have 48 MB of activations in both models, most of which
// stay in L2 while the weights pass by; and no more than 11, for with 66 clusters it is 11 that divide them
// evenly.
int most_group_blocks(const Settings& s) {
  const Index bytes_of_block = Index{hopper::block_rows} * (s.student.hidden + s.teacher.hidden) * 2;
  return static_cast<int>(std::clamp<Index>(48'000'000 / bytes_of_block, 6, 11));
}

std::vector<SweepSums> sweeps_of(Divergence kind, FusedSweep::Passes passes) {
  if (kind == Divergence::teacher_kl) return {SweepSums::teacher_kl};
  if (kind == Divergence::student_kl) return {SweepSums::student_kl};
  if (passes == FusedSweep::Passes::two) return {SweepSums::normalisers, SweepSums::terms};
  return {SweepSums::one_pass};
}

}  // namespace

FusedSweep::FusedSweep(const Settings& settings, const OnePassStatistics& statistics, Passes passes)
    : settings_(settings), statistics_(statistics), sweeps_(sweeps_of(statistics.kind, passes)) {
  obstacle_ = find_obstacle();
  if (obstacle_.empty()) plan_tiles();
}

std::string FusedSweep::find_obstacle() const {
  const Settings& s = settings_;
  const auto number = [](Index n) { return std::to_string(n); };
  if (s.device.capability != 90) {
    return "the device's compute capability is " + number(s.device.capability / 10) + "." +
           number(s.device.capability % 10) + ", and the fused sweep needs 9.0";
  }
  if (const std::string obstacle = hopper::obstacle_to_maps(s); !obstacle.empty()) return obstacle;
  // The kernel's no_entry, -2^100, would not be low; or infinitely so in both models, and their difference
  // NaN.
  if (!(statistics_.mixture.log2_scale > 1e-18f)) return "the temperature is above 1e18";
  if (!(statistics_.mixture.log2_scale < 1e8f)) return "the temperature is below 1.5e-8";
  for (const SweepSums sums : sweeps_) {
    if (hopper::most_clusters(kind_of(sums)) < 1) return "this library was built without sm_90a code";
  }
  return "";
}

void FusedSweep::plan_tiles() {
  const Settings& s = settings_;
  int clusters = std::numeric_limits<int>::max(), group_blocks = most_group_blocks(s);
  for (const SweepSums sums : sweeps_) clusters = std::min(clusters, hopper::most_clusters(kind_of(sums)));
  if (s.chunk_tokens > 0) {
    group_blocks = static_cast<int>(std::clamp<Index>(s.chunk_tokens / hopper::block_rows, 1, group_blocks));
  }
  if (s.chunk_vocab > 0) {  // entries that a cluster sweeps: the more of them, the fewer clusters
    clusters = static_cast<int>(std::clamp<Index>(ceil_div(s.valid_vocab, s.chunk_vocab), 1, clusters));
  }
  order_ = hopper::make_tile_order(static_cast<int>(s.tokens), static_cast<int>(s.valid_vocab), clusters,
                                   group_blocks);
}

void FusedSweep::fit(Index workspace_bytes) {
  const Index budget = settings_.memory_budget;
  if (!obstacle_.empty() || budget == 0 || workspace_bytes <= budget) return;
  obstacle_ = "with its records the fused sweep needs " + std::to_string(workspace_bytes) +
              " bytes, and memory_budget is " + std::to_string(budget);
}

bool FusedSweep::serves(const fljsd_tensors& t) const {
  return obstacle_.empty() && hopper::can_map(t);
}

hopper::SweepKind FusedSweep::kind_of(SweepSums sums) const {
  const Settings& s = settings_;
  const bool biased = s.student.bias_dtype != FLJSD_ABSENT || s.teacher.bias_dtype != FLJSD_ABSENT;
  return {.sums = sums,
          .dtype = s.student.dtype,
          .biased = biased,
          .small_share = statistics_.mixture.small_share};
}

Index FusedSweep::record_floats() const {
  return sweeps_.size() == 2 ? std::max(hopper::normaliser_record, hopper::terms_record)
                             : statistics_.record_floats(FLJSD_FORWARD);
}

std::vector<FusedSweep::TokenGroup> FusedSweep::groups() const {
  std::vector<TokenGroup> groups;
  for (Group g = order_.first(); g.blocks > 0; g = order_.after(g)) {
    const Index token = Index{g.first_block} * hopper::block_rows;
    groups.push_back({token, std::min<Index>(Index{g.blocks} * hopper::block_rows, settings_.tokens - token),
                      g.slots, g.first_record});
  }
  return groups;
}

FusedSweep::Arrays FusedSweep::lay_out(Workspace& workspace) const {
  Index groups = 0, records = 0;
  for (Group g = order_.first(); g.blocks > 0; g = order_.after(g)) {
    ++groups;
    records = g.first_record + g.records();
  }
  Arrays a;
  a.marks = workspace.take<unsigned>(groups);
  a.records = workspace.take<float>(records * record_floats());
  return a;
}

hopper::SweepMaps FusedSweep::maps(const fljsd_tensors& t) const {
  const Settings& s = settings_;
  const auto input = [&](const void* data, const Model& m) {
    return hopper::make_tensor_map(data, m.dtype, s.tokens, m.hidden, m.input_ld, hopper::cta_rows);
  };
  const auto weight = [&](const void* data, const Model& m) {
    return hopper::make_tensor_map(data, m.dtype, s.valid_vocab, m.hidden, m.weight_ld,
                                   hopper::tile_columns / hopper::cluster_size);
  };
  return {input(t.student_input, s.student), input(t.teacher_input, s.teacher),
          weight(t.student_weight, s.student), weight(t.teacher_weight, s.teacher)};
}

void FusedSweep::run(const Call& call, const BatchArrays& batch, const Arrays& a) const {
  run(call, batch, a, sweeps_.front(), nullptr);
}

void FusedSweep::run(const Call& call, const BatchArrays& batch, const Arrays& a, SweepSums sums,
                     const RowReference* references) const {
  const Settings& s = settings_;
  const bool one_pass = sums == SweepSums::one_pass;
  const hopper::SweepMaps operands = maps(call.tensors);
  hopper::SweepArguments arguments;
  arguments.order = order_;
  arguments.tokens = static_cast<int>(s.tokens);
  arguments.vocab = static_cast<int>(s.valid_vocab);
  arguments.student_k_blocks = static_cast<int>(ceil_div(s.student.hidden, 64));
  arguments.teacher_k_blocks = static_cast<int>(ceil_div(s.teacher.hidden, 64));
  arguments.scale = one_pass ? 0.5f * statistics_.mixture.log2_scale : statistics_.mixture.log2_scale;
  arguments.phase_step = statistics_.weights[FLJSD_FORWARD].phase_step;
  arguments.mixture = statistics_.mixture;
  arguments.row_references = references;
  arguments.student_bias = batch.student_bias;
  arguments.teacher_bias = batch.teacher_bias;
  arguments.records = a.records;
  hopper::SweepKind kind = kind_of(sums);
  if (!one_pass || kind.biased) {  // nothing is marked
    hopper::launch_sweep(call.stream, kind, operands, arguments);
    return;
  }
  arguments.marks = a.marks;
  check(cudaMemsetAsync(a.marks, 0, groups().size() * sizeof(unsigned), call.stream),
        "clearing the marks of the fused sweep");
  hopper::launch_sweep(call.stream, kind, operands, arguments);
  kind.careful = true;
  hopper::launch_sweep(call.stream, kind, operands, arguments);
}

std::string FusedSweep::describe() const {
  const Group first = order_.first();
  return std::string(sweeps_.size() == 2 ? "two fused sweeps" : "fused sweep") + " of tiles of " +
         std::to_string(hopper::block_rows) + " tokens x " + std::to_string(hopper::tile_columns) +
         " vocabulary entries by " + std::to_string(order_.clusters) + " clusters, " +
         std::to_string(first.blocks) + " blocks of tokens a group, " + std::to_string(first.slots) +
         " records a token";
}

}  // namespace fljsd::cuda
