// SPDX-License-Identifier: Apache-2.0
// Stages `fused` and `fused-two-pass`. Promise: losses with fp32 logits and without storing any; `fused` in
// little more time than cuBLASLt needs for the two projections.
//
//   fused:           one kernel (hopper/sweep.cuh): both projections, tile by tile in registers, folded into
//                    the one-pass statistics of one_pass_moments.cuh; then D of every token from its records
//                    (one_pass_finish.cu). A second kernel does again what the first one, the fast one,
//                    marked as beyond it; as a rule that is nothing
//   fused-two-pass:  the same kernel twice: first for where every row is normalised, then, with all products
//                    once more, for D by its definition (hopper/exact_sums.cuh). Twice the time; no
//                    quadrature, so that it says what the one pass is off by. At beta = 0 and 1 one pass is
//                    exact, and both stages are the same
//   backward:        of fused: `unfused` if memory_budget has room for all logits, four products; otherwise
//                    chunked-vocab, which computes them again, six products. Gradients from one pass need
//                    statistics of 47 sums, for which the kernel's registers are too few: with smaller tiles
//                    it was slower than cuBLASLt's products and a kernel of their own, whose last tile of
//                    logits can be kept for the second sweep besides (docs/kernels.md). Of fused-two-pass:
//                    chunked-tokens, which is exact too
//
// T tokens, V vocab, H hidden. FLOPs 4·T·V·H a pass. Bytes of a pass: the weights, 4·V·H, once for every 1536
// tokens or less; nothing of size T·V. Memory forward: records, 11 to 66 a token, of 256 bytes (16 in two
// passes).
//
// Where the kernel does not serve, chunked-vocab does (for fused-two-pass chunked-tokens), within 64 MB for
// 8192 tokens: another GPU than compute
// capability 9.0, fp32 or mixed inputs, rows that do not start at multiples of 16 bytes (leading dimensions
// are known to the plan, pointers to the call). fljsd_plan_describe() says which.
//
// Error budget in D of a token. One pass: quadrature 2.2e-6, sums in fp32 1.5e-6 (docs/one_pass.md). Two
// passes: hopper/exact_sums.cuh.
#include <algorithm>
#include <limits>

#include "cuda/batch.h"
#include "cuda/chernoff_kernels.h"
#include "cuda/hopper/sweep.h"
#include "cuda/hopper/tensor_map.h"
#include "cuda/hopper/two_pass_finish.h"
#include "cuda/one_pass_weights.h"
#include "cuda/stage.h"

namespace fljsd::cuda {
namespace {

using hopper::Group;

// Tokens of a group times 256: their activations, 25 MB for hidden 4096, stay in L2 beside the weights.
constexpr int most_group_blocks = 6;

// What the stage in the sweep's place may have, forward: cuBLASLt's workspace and tiles of chunked-vocab that
// are hardly slower than larger ones; or the logits of 16 tokens at a time.
Index fallback_budget(const Settings& s, bool two_passes) {
  return two_passes ? 30'000'000 + 128 * s.vocab + 64 * s.tokens : 28'000'000 + 4096 * s.tokens;
}

enum class Passes { one, two };

class Fused final : public Stage {
 public:
  Fused(const Settings& settings, Passes passes)
      : settings_(settings),
        kind_(divergence_kind(settings.beta)),
        two_passes_(passes == Passes::two && kind_ == Divergence::mixture),
        mixture_(make_mixture(settings.beta, settings.temperature)) {
    const Settings& s = settings_;
    if (s.tokens == 0) return;
    why_not_ = find_obstacle();
    Settings forward = s;
    forward.input_grad = forward.weight_grad = forward.bias_grad = false;
    if (why_not_.empty()) {
      plan_sweep();
      if (forward.memory_budget == 0) forward.memory_budget = fallback_budget(s, two_passes_);
    }
    instead_[FLJSD_FORWARD] = two_passes_ ? make_chunked_tokens(forward) : make_chunked_vocab(forward);
    if (s.any_grad()) instead_[FLJSD_FORWARD_BACKWARD] = make_backward();
  }

  Index workspace_bytes(fljsd_pass pass) const override {
    if (settings_.tokens == 0) return 0;
    const Index bytes = instead_[pass]->workspace_bytes(pass);
    if (pass == FLJSD_FORWARD_BACKWARD || !why_not_.empty()) return bytes;
    Workspace measure(nullptr);
    lay_out(measure, nullptr);
    return std::max(bytes, measure.used());
  }

  void run(fljsd_pass pass, const Call& call) const override {
    if (serves(pass, call.tensors)) {
      sweep(call);
    } else {
      instead_[pass]->run(pass, call);
    }
  }

  void tune(fljsd_pass pass, const Call& call) override {
    if (!serves(pass, call.tensors)) instead_[pass]->tune(pass, call);
  }

  std::string describe() const override {
    if (settings_.tokens == 0) return "";
    std::string text;
    if (why_not_.empty()) {
      const Group first = order_.first();
      text = std::string("forward: ") + (two_passes_ ? "two fused sweeps" : "fused sweep") + " of tiles of " +
             std::to_string(hopper::block_rows) + " tokens x " + std::to_string(hopper::tile_columns) +
             " vocabulary entries by " + std::to_string(order_.clusters) + " clusters, " +
             std::to_string(first.blocks) + " blocks of tokens a group, " + std::to_string(first.slots) +
             " records a token; tensors that do not start at multiples of 16 bytes: " + instead() + "\n";
    } else {
      text = std::string("forward: ") + instead() + ", because " + why_not_ + "\n" +
             instead_[FLJSD_FORWARD]->describe();
    }
    const auto& backward = instead_[FLJSD_FORWARD_BACKWARD];
    if (!backward) return text;
    const std::string how = stored_       ? "unfused, all logits stored"
                            : two_passes_ ? "chunked-tokens"
                                          : "chunked-vocab, logits computed twice";
    return text + "forward and backward: " + how + "\n" + backward->describe();
  }

 private:
  struct Arrays {
    BatchArrays batch;
    unsigned* marks = nullptr;
    float* records = nullptr;
    RowReference* references = nullptr;  // two passes
  };

  // Gradients, from logits that are stored if the caller's budget has room for them.
  std::unique_ptr<Stage> make_backward() {
    const Settings& s = settings_;
    if (two_passes_) return make_chunked_tokens(s);
    if (s.memory_budget > 0) {
      Settings all = s;
      all.memory_budget = 0;  // what it needs, not whether that is allowed
      auto stored = make_unfused(all);
      stored_ = stored->workspace_bytes(FLJSD_FORWARD_BACKWARD) <= s.memory_budget;
      if (stored_) return stored;
    }
    return make_chunked_vocab(s);
  }

  hopper::SweepKind sweep_kind(hopper::SweepSums sums) const {
    const Settings& s = settings_;
    const bool biased = s.student.bias_dtype != FLJSD_ABSENT || s.teacher.bias_dtype != FLJSD_ABSENT;
    return {sums, s.student.dtype, biased, mixture_.small_share};
  }
  // Of the first sweep, or the only one.
  hopper::SweepKind first_sweep() const {
    using hopper::SweepSums;
    if (kind_ == Divergence::teacher_kl) return sweep_kind(SweepSums::teacher_kl);
    if (kind_ == Divergence::student_kl) return sweep_kind(SweepSums::student_kl);
    return sweep_kind(two_passes_ ? SweepSums::normalisers : SweepSums::one_pass);
  }
  hopper::SweepKind second_sweep() const { return sweep_kind(hopper::SweepSums::terms); }

  int most_clusters() const {
    const int first = hopper::most_clusters(first_sweep());
    return two_passes_ ? std::min(first, hopper::most_clusters(second_sweep())) : first;
  }

  Index record_floats() const {
    return two_passes_ ? hopper::normaliser_record : state_floats(kind_, Basis::twelve);
  }

  // The stage that serves where the sweep does not, forward.
  const char* instead() const { return two_passes_ ? "chunked-tokens" : "chunked-vocab"; }

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
    if (most_clusters() < 1) return "this library was built without sm_90a code";
    return "";
  }

  void plan_sweep() {
    const Settings& s = settings_;
    if (kind_ == Divergence::mixture) weights_ = make_one_pass_weights(s.beta, Basis::twelve);
    int clusters = most_clusters(), group_blocks = most_group_blocks;
    if (s.chunk_tokens > 0) {
      group_blocks =
          static_cast<int>(std::clamp<Index>(s.chunk_tokens / hopper::block_rows, 1, most_group_blocks));
    }
    if (s.chunk_vocab > 0) {  // entries that a cluster sweeps: the more of them, the fewer clusters
      clusters = static_cast<int>(std::clamp<Index>(ceil_div(s.valid_vocab, s.chunk_vocab), 1, clusters));
    }
    order_ = hopper::make_tile_order(static_cast<int>(s.tokens), static_cast<int>(s.valid_vocab), clusters,
                                     group_blocks);
  }

  // Whether the sweep can do this pass with these tensors.
  bool serves(fljsd_pass pass, const fljsd_tensors& t) const {
    if (pass == FLJSD_FORWARD_BACKWARD || !why_not_.empty()) return false;
    for (const void* data : {t.student_input, t.student_weight, t.teacher_input, t.teacher_weight}) {
      if (!hopper::can_map(reinterpret_cast<std::uintptr_t>(data), 8)) return false;
    }
    return true;
  }

  Arrays lay_out(Workspace& workspace, const Call* call) const {
    Index groups = 0, records = 0;
    for (Group g = order_.first(); g.blocks > 0; g = order_.after(g)) {
      ++groups;
      records = g.first_record + g.records();
    }
    Arrays a;
    a.batch = begin_batch(settings_, FLJSD_FORWARD, workspace, call);
    a.marks = workspace.take<unsigned>(groups);
    a.records = workspace.take<float>(records * record_floats());
    if (two_passes_) {
      a.references = reinterpret_cast<RowReference*>(
          workspace.take<std::byte>(settings_.tokens * hopper::row_reference_bytes));
    }
    if (call != nullptr) {
      check(cudaMemsetAsync(a.marks, 0, static_cast<std::size_t>(groups) * sizeof(unsigned), call->stream),
            "clearing the marks of the fused sweep");
    }
    return a;
  }

  void sweep(const Call& call) const {
    const Settings& s = settings_;
    const fljsd_tensors& t = call.tensors;
    Workspace workspace(call.workspace);
    const Arrays a = lay_out(workspace, &call);
    const auto input = [&](const void* data, const Model& m) {
      return hopper::make_tensor_map(data, m.dtype, s.tokens, m.hidden, m.input_ld, hopper::cta_rows);
    };
    const auto weight = [&](const void* data, const Model& m) {
      return hopper::make_tensor_map(data, m.dtype, s.valid_vocab, m.hidden, m.weight_ld,
                                     hopper::tile_columns / hopper::cluster_size);
    };
    const hopper::SweepMaps maps{input(t.student_input, s.student), input(t.teacher_input, s.teacher),
                                 weight(t.student_weight, s.student), weight(t.teacher_weight, s.teacher)};
    hopper::SweepArguments arguments;
    arguments.order = order_;
    arguments.tokens = static_cast<int>(s.tokens);
    arguments.vocab = static_cast<int>(s.valid_vocab);
    arguments.student_k_blocks = static_cast<int>(ceil_div(s.student.hidden, 64));
    arguments.teacher_k_blocks = static_cast<int>(ceil_div(s.teacher.hidden, 64));
    const bool half_units = first_sweep().sums == hopper::SweepSums::one_pass;
    arguments.scale = half_units ? 0.5f * mixture_.log2_scale : mixture_.log2_scale;
    arguments.phase_step = weights_.phase_step;
    arguments.student_bias = a.batch.student_bias;
    arguments.teacher_bias = a.batch.teacher_bias;
    arguments.records = a.records;
    if (two_passes_) {
      run_two_passes(call, a, maps, arguments);
    } else {
      run_one_pass(call, a, maps, arguments);
    }
    finish_losses(s, call, a.batch.token_loss);
  }

  // f(group, its first token, its tokens).
  template <class F>
  void for_each_group(const F& f) const {
    for (Group g = order_.first(); g.blocks > 0; g = order_.after(g)) {
      const Index token = Index{g.first_block} * hopper::block_rows;
      f(g, token, std::min<Index>(Index{g.blocks} * hopper::block_rows, settings_.tokens - token));
    }
  }

  void run_one_pass(const Call& call, const Arrays& a, const hopper::SweepMaps& maps,
                    hopper::SweepArguments arguments) const {
    hopper::SweepKind kind = first_sweep();
    const bool fast = !kind.general;
    if (fast) arguments.marks = a.marks;
    hopper::launch_sweep(call.stream, kind, maps, arguments);
    if (fast && kind_ == Divergence::mixture) {  // the others never mark
      kind.general = true;
      hopper::launch_sweep(call.stream, kind, maps, arguments);
    }
    for_each_group([&](const Group& g, Index token, Index rows) {
      launch_finish(call.stream, kind_, Basis::twelve, mixture_, weights_,
                    {a.records + g.first_record * record_floats(), g.slots}, rows,
                    ignored_tokens(settings_, call, token), a.batch.token_loss + token, nullptr);
    });
  }

  void run_two_passes(const Call& call, const Arrays& a, const hopper::SweepMaps& maps,
                      hopper::SweepArguments arguments) const {
    hopper::launch_sweep(call.stream, first_sweep(), maps, arguments);
    for_each_group([&](const Group& g, Index token, Index rows) {
      hopper::launch_row_references(call.stream, mixture_, a.records + g.first_record * record_floats(),
                                    g.slots, rows, hopper::row_reference_at(a.references, token));
    });
    arguments.mixture = mixture_;
    arguments.row_references = a.references;
    hopper::launch_sweep(call.stream, second_sweep(), maps, arguments);
    for_each_group([&](const Group& g, Index token, Index rows) {
      hopper::launch_exact_losses(call.stream, a.records + g.first_record * hopper::terms_record, g.slots,
                                  rows, hopper::row_reference_at(a.references, token),
                                  ignored_tokens(settings_, call, token), a.batch.token_loss + token);
    });
  }

  Settings settings_;
  Divergence kind_;
  bool two_passes_;
  bool stored_ = false;  // whether gradients come from stored logits
  Mixture mixture_;
  OnePassWeights weights_;
  hopper::TileOrder order_;
  std::string why_not_;
  std::unique_ptr<Stage> instead_[2];  // by pass: serves where the sweep does not
};

}  // namespace

std::unique_ptr<Stage> make_fused(const Settings& settings) {
  return std::make_unique<Fused>(settings, Passes::one);
}
std::unique_ptr<Stage> make_fused_two_pass(const Settings& settings) {
  return std::make_unique<Fused>(settings, Passes::two);
}

}  // namespace fljsd::cuda
