// SPDX-License-Identifier: Apache-2.0
// Stage `fused`. Promise: the losses in hardly more time than cuBLASLt needs for the two projections, with
// fp32 logits and without storing any; the gradients by a second sweep in bounded memory.
//
//   forward:   one kernel (hopper/sweep.cuh): both projections, tile by tile in registers, folded into the
//   one-pass
//              statistics of one_pass_moments.cuh; then D of every token from its records
//              (one_pass_finish.cu)
//   backward:  the same kernel with finer statistics, whose row constants are good enough for gradients; then
//              backward_sweep.h
//
// T tokens, V vocab, H hidden. FLOPs 4·T·V·H forward, 12·T·V·H with gradients. Bytes forward: the weights,
// 4·V·H, once for every 1536 tokens or less; nothing of size T·V. Memory forward: records of 256 bytes, 11 to
// 66 a token.
//
// Where the kernel does not serve, chunked-vocab does, and forward within the same memory: another GPU than
// compute capability 9.0, fp32 or mixed inputs, rows that do not start at multiples of 16 bytes (leading
// dimensions are known to the plan, pointers to the call). fljsd_plan_describe() says which.
//
// Error budget: docs/one_pass.md; quadrature 2.2e-6 forward and 2e-7 with gradients, sums in fp32 1.5e-6, in
// D of a token.
#include <algorithm>
#include <limits>
#include <optional>

#include "cuda/backward_sweep.h"
#include "cuda/batch.h"
#include "cuda/chernoff_kernels.h"
#include "cuda/hopper/sweep.h"
#include "cuda/hopper/tensor_map.h"
#include "cuda/one_pass_weights.h"
#include "cuda/stage.h"

namespace fljsd::cuda {
namespace {

using hopper::Group;

// Tokens of a group times 256: their activations, 25 MB for hidden 4096, stay in L2 beside the weights.
constexpr int most_group_blocks = 6;

class Fused final : public Stage {
 public:
  explicit Fused(const Settings& settings)
      : settings_(settings),
        kind_(divergence_kind(settings.beta)),
        mixture_(make_mixture(settings.beta, settings.temperature)) {
    const Settings& s = settings_;
    if (s.tokens == 0) return;
    why_not_ = find_obstacle();
    Settings forward = s;
    forward.input_grad = forward.weight_grad = forward.bias_grad = false;
    if (why_not_.empty()) {
      plan_sweep(FLJSD_FORWARD);
      if (s.any_grad()) {
        plan_sweep(FLJSD_FORWARD_BACKWARD);
        plan_backward();
      }
      // Enough for small tiles; the sweep itself needs less.
      if (forward.memory_budget == 0) forward.memory_budget = 48'000'000 + 4096 * s.tokens;
    }
    fallback_[FLJSD_FORWARD] = make_chunked_vocab(forward);
    if (s.any_grad()) fallback_[FLJSD_FORWARD_BACKWARD] = make_chunked_vocab(s);
  }

  Index workspace_bytes(fljsd_pass pass) const override {
    if (settings_.tokens == 0) return 0;
    const Index bytes = fallback_[pass]->workspace_bytes(pass);
    return why_not_.empty() ? std::max(bytes, sweep_bytes(pass)) : bytes;
  }

  void run(fljsd_pass pass, const Call& call) const override {
    if (!serves(call.tensors)) return fallback_[pass]->run(pass, call);
    Workspace workspace(call.workspace);
    const Arrays a = lay_out(pass, workspace, &call);
    sweep(pass, call, a);
    if (pass == FLJSD_FORWARD_BACKWARD) backward_->run(call, a.batch, a.backward);
    finish_losses(settings_, call, a.batch.token_loss);
  }

  void tune(fljsd_pass pass, const Call& call) override {
    if (!serves(call.tensors)) return fallback_[pass]->tune(pass, call);
    if (pass == FLJSD_FORWARD) return;
    run(pass, call);
    Workspace workspace(call.workspace);
    const Arrays a = lay_out(pass, workspace, &call);
    backward_->tune(call, a.batch, a.backward);
  }

  std::string describe() const override {
    if (settings_.tokens == 0) return "";
    if (!why_not_.empty()) {
      std::string text = "chunked-vocab, because " + why_not_ + "\n" + fallback_[FLJSD_FORWARD]->describe();
      const auto& backward = fallback_[FLJSD_FORWARD_BACKWARD];
      return backward ? text + backward->describe() : text;
    }
    std::string text = "forward: " + describe(plan_[FLJSD_FORWARD]);
    if (backward_)
      text += "forward and backward: " + describe(plan_[FLJSD_FORWARD_BACKWARD]) + backward_->describe();
    return text + "tensors that do not start at multiples of 16 bytes: chunked-vocab\n";
  }

 private:
  struct Arrays {
    BatchArrays batch;
    unsigned* progress = nullptr;
    float* records = nullptr;
    BackwardSweep::Arrays backward;  // with gradients
  };
  struct SweepPlan {
    hopper::TileOrder order;
    OnePassWeights weights;
  };

  static Basis basis(fljsd_pass pass) { return pass == FLJSD_FORWARD ? Basis::twelve : Basis::twenty_two; }

  static std::string describe(const SweepPlan& plan) {
    const Group first = plan.order.first();
    return "fused sweep of tiles of " + std::to_string(hopper::block_rows) + " tokens x " +
           std::to_string(plan.order.columns) + " vocabulary entries by " +
           std::to_string(plan.order.clusters) + " clusters, " + std::to_string(first.blocks) +
           " blocks of tokens a group, " + std::to_string(first.slots) + " records a token\n";
  }

  hopper::SweepKind sweep_kind(fljsd_pass pass) const {
    const Settings& s = settings_;
    // Biases may be -inf, and finite logits overflow only by a scale above 1: temperatures below 0.73
    // (mixture) or 1.45.
    const float scale = hopper::half_units(kind_) ? 0.5f * mixture_.log2_scale : mixture_.log2_scale;
    const bool general =
        s.student.bias_dtype != FLJSD_ABSENT || s.teacher.bias_dtype != FLJSD_ABSENT || !(scale <= 1);
    return {kind_, basis(pass), s.student.dtype, general};
  }

  // Why the sweep cannot serve this plan, as the end of a sentence; empty if it can.
  std::string find_obstacle() const {
    const Settings& s = settings_;
    const auto number = [](Index n) { return std::to_string(n); };
    if (s.device.capability != 90) {
      return "the device's compute capability is " + number(s.device.capability / 10) + "." +
             number(s.device.capability % 10) + ", and the fused sweep needs 9.0";
    }
    if (s.student.dtype == FLJSD_F32 || s.student.dtype != s.teacher.dtype) {
      return std::string("the models are in ") + name(s.student.dtype) + " and " + name(s.teacher.dtype) +
             ", and the fused sweep needs both in bf16 or both in fp16";
    }
    const Index lds[] = {s.student.input_ld, s.student.weight_ld, s.teacher.input_ld, s.teacher.weight_ld};
    for (const Index ld : lds) {
      if (!hopper::can_map(0, ld))
        return "a leading dimension is " + number(ld) + ", and the fused sweep needs multiples of 8";
    }
    constexpr Index most = std::numeric_limits<int>::max() / 2;
    if (std::max({s.tokens, s.vocab, s.student.hidden, s.teacher.hidden}) > most)
      return "a size is beyond " + number(most);
    if (!(mixture_.log2_scale > 1e-18f)) return "the temperature is above 1e18";  // no_entry would not be low
    if (hopper::most_clusters(sweep_kind(FLJSD_FORWARD)) < 1)
      return "this library was built without sm_90a code";
    return "";
  }

  void plan_sweep(fljsd_pass pass) {
    const Settings& s = settings_;
    const hopper::SweepKind kind = sweep_kind(pass);
    if (kind_ == Divergence::mixture) plan_[pass].weights = make_one_pass_weights(s.beta, basis(pass));
    int clusters = hopper::most_clusters(kind), group_blocks = most_group_blocks;
    if (s.chunk_tokens > 0) {
      group_blocks =
          static_cast<int>(std::clamp<Index>(s.chunk_tokens / hopper::block_rows, 1, most_group_blocks));
    }
    if (s.chunk_vocab > 0) {  // entries that a cluster sweeps: the more of them, the fewer clusters
      clusters = static_cast<int>(std::clamp<Index>(ceil_div(s.valid_vocab, s.chunk_vocab), 1, clusters));
    }
    plan_[pass].order =
        hopper::make_tile_order(static_cast<int>(s.tokens), static_cast<int>(s.valid_vocab),
                                hopper::tile_columns(kind_, basis(pass)), clusters, group_blocks);
  }

  // As chunked-vocab cuts its gradient: into tiles of 1 GB, or what a budget leaves.
  void plan_backward() {
    const Settings& s = settings_;
    const Index bytes = std::max<Index>(1'000'000'000, s.memory_budget / 10 * 9);
    tiles_ = {s.valid_vocab, s.gradient_chunk_vocab > 0 ? s.gradient_chunk_vocab
                                                        : whole_waves(s.device, s.tokens, 10, bytes)};
    tiles_.size = std::min(tiles_.size, s.valid_vocab);
    while (s.memory_budget > 0 && sweep_bytes(FLJSD_FORWARD_BACKWARD) > s.memory_budget) {
      if (s.gradient_chunk_vocab > 0 || tiles_.size <= 64) {
        fail(FLJSD_WORKSPACE_TOO_SMALL, "memory_budget is ", s.memory_budget,
             " bytes, but with its smallest tiles stage fused needs ", sweep_bytes(FLJSD_FORWARD_BACKWARD),
             ".");
      }
      tiles_ = cut(tiles_.total, std::max<Index>(64, tiles_.size / 2), 64);
    }
    backward_.emplace(s, std::make_shared<LtHandle>(), tiles_);
  }

  // Whether the sweep can read these tensors.
  bool serves(const fljsd_tensors& t) const {
    if (!why_not_.empty()) return false;
    for (const void* data : {t.student_input, t.student_weight, t.teacher_input, t.teacher_weight}) {
      if (!hopper::can_map(reinterpret_cast<std::uintptr_t>(data), 8)) return false;
    }
    return true;
  }

  Index record_floats(fljsd_pass pass) const { return state_floats(kind_, basis(pass)); }
  Index record_count(fljsd_pass pass) const {
    Index records = 0;
    const hopper::TileOrder& order = plan_[pass].order;
    for (Group g = order.first(); g.blocks > 0; g = order.after(g)) records = g.first_record + g.records();
    return records;
  }

  Arrays lay_out(fljsd_pass pass, Workspace& workspace, const Call* call) const {
    Arrays a;
    a.batch = begin_batch(settings_, pass, workspace, call);
    a.progress = workspace.take<unsigned>(1);
    a.records = workspace.take<float>(record_count(pass) * record_floats(pass));
    if (pass == FLJSD_FORWARD_BACKWARD) a.backward = BackwardSweep::lay_out(settings_, tiles_, workspace);
    return a;
  }
  Index sweep_bytes(fljsd_pass pass) const {
    Workspace measure(nullptr);
    lay_out(pass, measure, nullptr);
    return measure.used();
  }

  static RowConstants* constants_from(RowConstants* constants, Index token) {
    if (constants == nullptr) return nullptr;
    void* const bytes = constants;
    return static_cast<RowConstants*>(
        static_cast<void*>(static_cast<std::byte*>(bytes) + token * row_constants_bytes));
  }

  // Losses of all tokens, and their row constants if gradients follow.
  void sweep(fljsd_pass pass, const Call& call, const Arrays& a) const {
    const Settings& s = settings_;
    const fljsd_tensors& t = call.tensors;
    const auto& [order, weights] = plan_[pass];
    const auto input = [&](const void* data, const Model& m) {
      return hopper::make_tensor_map(data, m.dtype, s.tokens, m.hidden, m.input_ld, hopper::cta_rows);
    };
    const auto weight = [&](const void* data, const Model& m) {
      return hopper::make_tensor_map(data, m.dtype, s.valid_vocab, m.hidden, m.weight_ld,
                                     order.columns / hopper::cluster_size);
    };
    const hopper::SweepMaps maps{input(t.student_input, s.student), input(t.teacher_input, s.teacher),
                                 weight(t.student_weight, s.student), weight(t.teacher_weight, s.teacher)};
    hopper::SweepArguments arguments;
    arguments.order = order;
    arguments.tokens = static_cast<int>(s.tokens);
    arguments.vocab = static_cast<int>(s.valid_vocab);
    arguments.student_k_blocks = static_cast<int>(ceil_div(s.student.hidden, 64));
    arguments.teacher_k_blocks = static_cast<int>(ceil_div(s.teacher.hidden, 64));
    arguments.scale = hopper::half_units(kind_) ? 0.5f * mixture_.log2_scale : mixture_.log2_scale;
    arguments.phase_step = weights.phase_step;
    arguments.student_bias = a.batch.student_bias;
    arguments.teacher_bias = a.batch.teacher_bias;
    arguments.records = a.records;
    arguments.progress = a.progress;
    arguments.most_steps =
        hopper::lockstep_steps(order, arguments.student_k_blocks, arguments.teacher_k_blocks);
    hopper::launch_sweep(call.stream, sweep_kind(pass), maps, arguments);
    for (Group g = order.first(); g.blocks > 0; g = order.after(g)) {
      const Index token = Index{g.first_block} * hopper::block_rows;
      const Index rows = std::min<Index>(Index{g.blocks} * hopper::block_rows, s.tokens - token);
      launch_finish(call.stream, kind_, basis(pass), mixture_, weights,
                    {a.records + g.first_record * record_floats(pass), g.slots}, rows,
                    ignored_tokens(s, call, token), a.batch.token_loss + token,
                    constants_from(a.backward.constants, token));
    }
  }

  Settings settings_;
  Divergence kind_;
  Mixture mixture_;
  std::string why_not_;
  SweepPlan plan_[2];  // by pass
  Pieces tiles_;       // of the backward sweep
  std::optional<BackwardSweep> backward_;
  std::unique_ptr<Stage> fallback_[2];  // by pass
};

}  // namespace

std::unique_ptr<Stage> make_fused(const Settings& settings) {
  return std::make_unique<Fused>(settings);
}

}  // namespace fljsd::cuda
