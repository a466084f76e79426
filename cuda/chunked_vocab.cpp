// SPDX-License-Identifier: Apache-2.0
// Stage `chunked-vocab`. Promise: losses without logits in memory, on any GPU; gradients by a second sweep.
//
//   forward:   for each block of tokens, for each tile of the vocabulary: X, Y tiles by cuBLASLt, folded into
//              one-pass statistics (chernoff_kernels.cu); then D and the row constants of every token
//   backward:  the same with all tokens in a tile; then a second sweep over the tiles: X, Y again, dlogits
//   from
//              the row constants, and
//                student_input_grad += dlogits · weight tile      (fp32, rounded once at the end)
//                student_weight_grad tile = dlogitsᵀ · student_input / (n·T)          (complete: rounded
//                once)
//              It begins with the tile that the first sweep ended with, whose logits are still there.
//
// T tokens, V vocab, H hidden, tiles of C entries. FLOPs 4·T·V·H forward, 12·T·V·H − 4·T·C·H with gradients:
// the price of not keeping all logits is at most two of six products, and memory buys it back, a share C/V of
// it. Bytes forward: weights 4·V·H once for each block of tokens; logits 8·T·V written and read once. A tile
// of a product starts and ends with most multiprocessors idle, so tiles are as large as their memory allows,
// and of as many whole waves of 128 x 256 pieces as fit. Memory forward: the tile (100 MB), cuBLASLt's
// workspace (16 MB) and 256 bytes a token. Backward: 10 bytes per token and tile column (1 GB, or what a
// larger budget allows), 4·T·H for the sum of the input gradient.
//
// Error budget: chernoff_kernels.cu and one_pass_weights.h; 3.7e-6 in D forward, 1.7e-6 with gradients.
// dlogits inherit q times the error of (1−beta)·kappa, and the budget of row_kernels.cu otherwise.
#include <algorithm>
#include <optional>

#include "cuda/batch.h"
#include "cuda/chernoff_kernels.h"
#include "cuda/failure.h"
#include "cuda/gemm.h"
#include "cuda/one_pass_weights.h"
#include "cuda/stage.h"

namespace fljsd::cuda {
namespace {

// A range cut into equal pieces, the last of which may be shorter.
struct Pieces {
  Index total = 0;
  Index size = 1;

  Index count() const { return ceil_div(total, size); }
  Index tail() const { return total - (count() - 1) * size; }  // of the last piece
  Index start(Index i) const { return i * size; }
  Index length(Index i) const { return i + 1 == count() ? tail() : size; }
};

// About `size` each, all about equal, a multiple of `unit` unless there is only one.
Pieces cut(Index total, Index size, Index unit) {
  if (size >= total) return {total, total};
  const Index even = round_up(ceil_div(total, ceil_div(total, size)), unit);
  return {total, std::min(total, std::max(unit, std::min(even, round_up(size, unit))))};
}

class ChunkedVocab final : public Stage {
 public:
  explicit ChunkedVocab(const Settings& settings)
      : settings_(settings),
        kind_(divergence_kind(settings.beta)),
        mixture_(make_mixture(settings.beta, settings.temperature)),
        lt_(std::make_shared<LtHandle>()),
        alpha_(static_cast<float>(gradient_alpha(settings))) {
    const Settings& s = settings_;
    if (s.tokens == 0) return;
    if (kind_ == Divergence::mixture) {
      weights_[FLJSD_FORWARD] = make_one_pass_weights(s.beta, basis(FLJSD_FORWARD));
      if (s.any_grad())
        weights_[FLJSD_FORWARD_BACKWARD] = make_one_pass_weights(s.beta, basis(FLJSD_FORWARD_BACKWARD));
    }
    choose_tiles();
    fit_budget();
    for (const Index rows : {token_blocks_.size, token_blocks_.tail()}) {
      for (const Index columns : {tiles_.size, tiles_.tail()}) sweep_.push_back(make_logits(rows, columns));
    }
    if (!s.any_grad()) return;
    for (const Index columns : {gradient_tiles_.size, gradient_tiles_.tail()}) {
      gradient_sweep_.push_back(make_gradient(columns));
    }
  }

  Index workspace_bytes(fljsd_pass pass) const override {
    if (settings_.tokens == 0) return 0;
    Workspace measure(nullptr);
    lay_out(pass, measure, nullptr);
    return measure.used();
  }

  void run(fljsd_pass pass, const Call& call) const override {
    Workspace workspace(call.workspace);
    const Arrays a = lay_out(pass, workspace, &call);
    if (pass == FLJSD_FORWARD) {
      sweep(call, a);
    } else {
      sweep_all_tokens(call, a);
    }
    launch_finish(call.stream, kind_, basis(pass), mixture_, weights_[pass], {a.state, slices(pass)},
                  settings_.tokens, ignored_tokens(settings_, call), a.batch.token_loss, a.constants);
    if (pass == FLJSD_FORWARD_BACKWARD) sweep_gradient(call, a);
    finish_losses(settings_, call, a.batch.token_loss);
  }

  // Shapes that only tails have are measured as well.
  void tune(fljsd_pass pass, const Call& call) override {
    run(pass, call);  // real data in every operand: the speed of a product depends on them
    Workspace workspace(call.workspace);
    const Arrays a = lay_out(pass, workspace, &call);
    if (pass == FLJSD_FORWARD) {
      for (const bool last_block : {false, true}) {
        for (const bool last_tile : {false, true}) {
          if ((last_block && token_blocks_.tail() == token_blocks_.size) ||
              (last_tile && tiles_.tail() == tiles_.size)) {
            continue;
          }
          const Index token = last_block ? token_blocks_.start(token_blocks_.count() - 1) : 0;
          const Index entry = last_tile ? tiles_.start(tiles_.count() - 1) : 0;
          LogitProducts& p = sweep_[(last_block ? 2u : 0u) + (last_tile ? 1u : 0u)];
          p.student.tune(call.stream, student_operands(call, a, token, entry));
          p.teacher.tune(call.stream, teacher_operands(call, a, token, entry));
        }
      }
      return;
    }
    const Factors f = factors(a);
    for (const bool last_tile : {false, true}) {
      if (last_tile && gradient_tiles_.tail() == gradient_tiles_.size) continue;
      const Index entry = last_tile ? gradient_tiles_.start(gradient_tiles_.count() - 1) : 0;
      GradientProducts& p = gradient_sweep_[last_tile ? 1 : 0];
      if (p.input_grad) p.input_grad->tune(call.stream, input_grad_operands(call, a, f, entry, false));
      if (p.weight_grad) p.weight_grad->tune(call.stream, weight_grad_operands(call, a, f, entry));
      p.logits.student.tune(call.stream, student_operands(call, a, 0, entry));
      p.logits.teacher.tune(call.stream, teacher_operands(call, a, 0, entry));
    }
  }

  std::string describe() const override {
    if (settings_.tokens == 0) return "";
    std::string text = "forward: tiles of " + std::to_string(token_blocks_.size) + " tokens x " +
                       std::to_string(tiles_.size) + " vocabulary entries, " +
                       std::to_string(slices(FLJSD_FORWARD)) + " slices a row\n";
    for (const LogitProducts& p : sweep_)
      text += "  " + p.student.describe() + "\n  " + p.teacher.describe() + "\n";
    if (gradient_sweep_.empty()) return text;
    text += "forward and backward: tiles of all tokens x " + std::to_string(gradient_tiles_.size) +
            " vocabulary entries, " + std::to_string(slices(FLJSD_FORWARD_BACKWARD)) + " slices a row\n";
    for (const GradientProducts& p : gradient_sweep_) {
      text += "  " + p.logits.student.describe() + "\n  " + p.logits.teacher.describe() + "\n";
      if (p.input_grad) text += "  " + p.input_grad->describe() + "\n";
      if (p.weight_grad) text += "  " + p.weight_grad->describe() + "\n";
    }
    return text;
  }

 private:
  struct LogitProducts {
    Gemm student, teacher;
  };
  struct GradientProducts {
    LogitProducts logits;
    std::optional<Gemm> input_grad, weight_grad;
  };
  struct Arrays {
    BatchArrays batch;
    void* gemm_workspace = nullptr;
    float* student_logits = nullptr;  // a tile of either sweep
    float* teacher_logits = nullptr;
    float* state = nullptr;             // [tokens, slices, state_floats]
    RowConstants* constants = nullptr;  // [tokens]
    Dlogits dlogits;                    // [tokens, tile]
    float* input_grad_sum = nullptr;    // [tokens, hidden], unless the result is fp32
    float* column_sum = nullptr;        // [valid_vocab]
    float* column_sum_partial = nullptr;
    float* mean_row = nullptr;  // [hidden], with the dlogits' residual
    float* mean_row_partial = nullptr;
  };
  struct Factors {
    const float *alpha, *zero, *one;
  };

  Basis basis(fljsd_pass pass) const { return pass == FLJSD_FORWARD ? Basis::twelve : Basis::twenty_two; }
  static Index tile_ld(Index columns) { return round_up(columns, 64); }

  // Slices of a row: enough that the rows of a tile give every multiprocessor 16 warps.
  Index slices(fljsd_pass pass) const {
    const Index rows = pass == FLJSD_FORWARD ? token_blocks_.size : settings_.tokens;
    const Index columns = pass == FLJSD_FORWARD ? tiles_.size : gradient_tiles_.size;
    const Index warps = Index{16} * settings_.device.multiprocessors;
    return std::clamp<Index>(warps / rows, 1, std::clamp<Index>(columns / 512, 1, 16));
  }

  // Whether the input gradient is summed in the workspace; an fp32 one is summed where it is wanted.
  bool sums_input_grad() const { return settings_.input_grad && settings_.gradient_dtype != FLJSD_F32; }

  void choose_tiles() {
    const Settings& s = settings_;
    const Index tokens = s.chunk_tokens > 0 ? s.chunk_tokens : s.tokens <= 1536 ? s.tokens : 2048;
    token_blocks_ = cut(s.tokens, tokens, s.chunk_tokens > 0 ? 1 : 128);
    const Index forward_bytes = std::max<Index>(103'000'000, s.memory_budget / 10 * 8);
    tiles_ = {s.valid_vocab,
              s.chunk_vocab > 0 ? s.chunk_vocab : whole_waves(token_blocks_.size, 8, forward_bytes)};
    // With gradients: 10 bytes an entry. What a budget leaves after smaller things goes to the tile.
    const Index bytes = std::max<Index>(1'000'000'000, s.memory_budget / 10 * 9);
    gradient_tiles_ = {s.valid_vocab, s.gradient_chunk_vocab > 0 ? s.gradient_chunk_vocab
                                                                 : whole_waves(s.tokens, 10, bytes)};
    for (Pieces* pieces : {&tiles_, &gradient_tiles_}) pieces->size = std::min(pieces->size, s.valid_vocab);
  }

  // The most columns of a tile of `rows` tokens within `bytes` whose 128 x 256 pieces, by which cuBLASLt's
  // kernels proceed, fill the multiprocessors to 97 % or better; or the ones that fill them best.
  Index whole_waves(Index rows, Index bytes_of_entry, Index bytes) const {
    const Index processors = settings_.device.multiprocessors, down = ceil_div(rows, 128);
    const Index most = std::max<Index>(1, bytes / bytes_of_entry / rows / 256);
    Index best = 1;
    double best_share = 0;
    for (Index across = most; across >= std::max<Index>(1, most / 2); --across) {
      const Index pieces = down * across;
      const double share = static_cast<double>(pieces) / static_cast<double>(round_up(pieces, processors));
      if (share >= 0.97) return 256 * across;
      if (share > best_share) best = across, best_share = share;
    }
    return 256 * best;
  }

  // Halves the tiles that nobody asked for until the budget is met.
  void fit_budget() {
    const Settings& s = settings_;
    if (s.memory_budget == 0) return;
    const auto shrink = [&](fljsd_pass pass, Pieces& pieces, bool fixed) {
      while (workspace_bytes(pass) > s.memory_budget) {
        if (fixed || pieces.size <= 64) return false;
        pieces = cut(pieces.total, std::max<Index>(64, pieces.size / 2), 64);
      }
      return true;
    };
    bool fits = shrink(FLJSD_FORWARD, tiles_, s.chunk_vocab > 0);
    if (fits && s.any_grad())
      fits = shrink(FLJSD_FORWARD_BACKWARD, gradient_tiles_, s.gradient_chunk_vocab > 0);
    if (fits) return;
    const fljsd_pass pass = s.any_grad() ? FLJSD_FORWARD_BACKWARD : FLJSD_FORWARD;
    fail(FLJSD_WORKSPACE_TOO_SMALL, "memory_budget is ", s.memory_budget,
         " bytes, but with its smallest tiles stage chunked-vocab needs ", workspace_bytes(pass), ".");
  }

  LogitProducts make_logits(Index rows, Index columns) const {
    const auto product = [&](const char* what, const Model& model) {
      return Gemm(lt_, {.what = what,
                        .m = rows,
                        .n = columns,
                        .k = model.hidden,
                        .transpose_b = true,
                        .lda = model.input_ld,
                        .ldb = model.weight_ld,
                        .ldc = tile_ld(columns),
                        .in = model.dtype,
                        .out = FLJSD_F32});
    };
    return {product("student logits", settings_.student), product("teacher logits", settings_.teacher)};
  }

  GradientProducts make_gradient(Index columns) const {
    const Settings& s = settings_;
    const Scalars scalars = s.divisor_on_device() ? Scalars::device : Scalars::host;
    GradientProducts p{make_logits(s.tokens, columns), std::nullopt, std::nullopt};
    if (s.input_grad) {
      p.input_grad.emplace(lt_, GemmSpec{.what = "student input gradient",
                                         .m = s.tokens,
                                         .n = s.student.hidden,
                                         .k = columns,
                                         .lda = tile_ld(columns),
                                         .ldb = s.student.weight_ld,
                                         .ldc = sums_input_grad() ? s.student.hidden : s.input_grad_ld,
                                         .in = s.student.dtype,
                                         .out = sums_input_grad() ? FLJSD_F32 : s.gradient_dtype,
                                         .scalars = scalars});
    }
    if (s.weight_grad) {
      p.weight_grad.emplace(lt_, GemmSpec{.what = "student weight gradient",
                                          .m = columns,
                                          .n = s.student.hidden,
                                          .k = s.tokens,
                                          .transpose_a = true,
                                          .lda = tile_ld(columns),
                                          .ldb = s.has_labels ? s.student.hidden : s.student.input_ld,
                                          .ldc = s.weight_grad_ld,
                                          .in = s.student.dtype,
                                          .out = s.gradient_dtype,
                                          .scalars = scalars});
    }
    return p;
  }

  Arrays lay_out(fljsd_pass pass, Workspace& workspace, const Call* call) const {
    const Settings& s = settings_;
    const bool backward = pass == FLJSD_FORWARD_BACKWARD;
    Arrays a;
    a.batch = begin_batch(s, pass, workspace, call);
    a.gemm_workspace = workspace.take<std::byte>(Gemm::workspace_size);
    const Index tile =
        backward ? s.tokens * tile_ld(gradient_tiles_.size) : token_blocks_.size * tile_ld(tiles_.size);
    a.student_logits = workspace.take<float>(tile);
    a.teacher_logits = workspace.take<float>(tile);
    a.state = workspace.take<float>(s.tokens * slices(pass) * state_floats(kind_, basis(pass)));
    if (!backward) return a;
    a.constants = static_cast<RowConstants*>(
        static_cast<void*>(workspace.take<std::byte>(s.tokens * row_constants_bytes)));
    const Index ld = tile_ld(gradient_tiles_.size);
    a.dlogits = {workspace.take(s.student.dtype, s.tokens * ld), s.student.dtype, ld,
                 static_cast<float>(dlogits_factor(s)), nullptr};
    if (s.input_grad && s.student.dtype != FLJSD_F32) {
      a.dlogits.residual = workspace.take<float>(s.tokens);
      a.mean_row = workspace.take<float>(s.student.hidden);
      a.mean_row_partial = workspace.take<float>(mean_row_partials * s.student.hidden);
    }
    if (sums_input_grad()) a.input_grad_sum = workspace.take<float>(s.tokens * s.student.hidden);
    if (s.bias_grad) {
      a.column_sum = workspace.take<float>(s.valid_vocab);
      a.column_sum_partial = workspace.take<float>(column_sum_partials(s.tokens) * gradient_tiles_.size);
    }
    return a;
  }

  // Logits of the tile that starts at `token` and `entry`.
  Gemm::Operands student_operands(const Call& call, const Arrays& a, Index token, Index entry) const {
    const Model& m = settings_.student;
    return {at(call.tensors.student_input, m.dtype, token * m.input_ld),
            at(call.tensors.student_weight, m.dtype, entry * m.weight_ld),
            a.student_logits,
            &one_,
            &zero_,
            a.gemm_workspace};
  }
  Gemm::Operands teacher_operands(const Call& call, const Arrays& a, Index token, Index entry) const {
    const Model& m = settings_.teacher;
    return {at(call.tensors.teacher_input, m.dtype, token * m.input_ld),
            at(call.tensors.teacher_weight, m.dtype, entry * m.weight_ld),
            a.teacher_logits,
            &one_,
            &zero_,
            a.gemm_workspace};
  }

  Factors factors(const Arrays& a) const {
    if (settings_.divisor_on_device()) {
      const DeviceScalars* scalars = a.batch.scalars;
      return {&scalars->alpha, &scalars->zero, &scalars->one};
    }
    return {&alpha_, &zero_, &one_};
  }
  // `adds`: to what earlier tiles left.
  Gemm::Operands input_grad_operands(const Call& call, const Arrays& a, const Factors& f, Index entry,
                                     bool adds) const {
    const Settings& s = settings_;
    return {a.dlogits.data,
            at(call.tensors.student_weight, s.student.dtype, entry * s.student.weight_ld),
            a.input_grad_sum != nullptr ? a.input_grad_sum : call.tensors.student_input_grad,
            f.alpha,
            adds ? f.one : f.zero,
            a.gemm_workspace};
  }
  Gemm::Operands weight_grad_operands(const Call& call, const Arrays& a, const Factors& f,
                                      Index entry) const {
    return {a.dlogits.data,
            a.batch.student_input,
            at(call.tensors.student_weight_grad, settings_.gradient_dtype, entry * settings_.weight_grad_ld),
            f.alpha,
            f.zero,
            a.gemm_workspace};
  }

  LogitTile tile(const Call& call, const Arrays& a, Index token, Index rows, Index entry,
                 Index columns) const {
    const auto from = [&](const float* bias) { return bias != nullptr ? bias + entry : nullptr; };
    return {a.student_logits,
            a.teacher_logits,
            tile_ld(columns),
            rows,
            columns,
            from(a.batch.student_bias),
            from(a.batch.teacher_bias),
            ignored_tokens(settings_, call, token)};
  }

  // Statistics of all tokens, a block of tokens after the other.
  void sweep(const Call& call, const Arrays& a) const {
    const Index record = slices(FLJSD_FORWARD) * state_floats(kind_, basis(FLJSD_FORWARD));
    for (Index block = 0; block < token_blocks_.count(); ++block) {
      const Index token = token_blocks_.start(block), rows = token_blocks_.length(block);
      for (Index i = 0; i < tiles_.count(); ++i) {
        const Index entry = tiles_.start(i), columns = tiles_.length(i);
        const LogitProducts& p =
            sweep_[(rows == token_blocks_.size ? 0u : 2u) + (columns == tiles_.size ? 0u : 1u)];
        p.student.run(call.stream, student_operands(call, a, token, entry));
        p.teacher.run(call.stream, teacher_operands(call, a, token, entry));
        launch_accumulate(call.stream, kind_, basis(FLJSD_FORWARD), mixture_,
                          weights_[FLJSD_FORWARD].phase_step, tile(call, a, token, rows, entry, columns),
                          {a.state + token * record, slices(FLJSD_FORWARD)}, i == 0);
      }
    }
  }

  // The order of both sweeps over the gradient's tiles: the second one begins with the tile that the first
  // one ends with, and that is one of full size.
  Index first_sweep_tile(Index step) const {
    const Index count = gradient_tiles_.count();
    return step == 0 ? count - 1 : step - 1;
  }
  Index second_sweep_tile(Index step) const { return first_sweep_tile(gradient_tiles_.count() - 1 - step); }
  const GradientProducts& products_of(Index tile) const {
    return gradient_sweep_[gradient_tiles_.length(tile) == gradient_tiles_.size ? 0 : 1];
  }
  void run_logits(const Call& call, const Arrays& a, Index tile) const {
    const LogitProducts& p = products_of(tile).logits;
    p.student.run(call.stream, student_operands(call, a, 0, gradient_tiles_.start(tile)));
    p.teacher.run(call.stream, teacher_operands(call, a, 0, gradient_tiles_.start(tile)));
  }
  LogitTile tile_of_all_tokens(const Call& call, const Arrays& a, Index i) const {
    return tile(call, a, 0, settings_.tokens, gradient_tiles_.start(i), gradient_tiles_.length(i));
  }

  // The same for the backward pass, in tiles of all tokens. Leaves the logits of second_sweep_tile(0).
  void sweep_all_tokens(const Call& call, const Arrays& a) const {
    constexpr fljsd_pass pass = FLJSD_FORWARD_BACKWARD;
    for (Index step = 0; step < gradient_tiles_.count(); ++step) {
      const Index i = first_sweep_tile(step);
      run_logits(call, a, i);
      launch_accumulate(call.stream, kind_, basis(pass), mixture_, weights_[pass].phase_step,
                        tile_of_all_tokens(call, a, i), {a.state, slices(pass)}, step == 0);
    }
  }

  void sweep_gradient(const Call& call, const Arrays& a) const {
    const Settings& s = settings_;
    const fljsd_tensors& t = call.tensors;
    const Factors f = factors(a);
    for (Index step = 0; step < gradient_tiles_.count(); ++step) {
      const Index i = second_sweep_tile(step);
      const Index entry = gradient_tiles_.start(i), columns = gradient_tiles_.length(i);
      const GradientProducts& p = products_of(i);
      if (step > 0) run_logits(call, a, i);
      Dlogits dlogits = a.dlogits;
      dlogits.ld = tile_ld(columns);
      launch_tile_dlogits(call.stream, kind_, mixture_, tile_of_all_tokens(call, a, i), a.constants, dlogits,
                          step == 0);
      if (p.input_grad) p.input_grad->run(call.stream, input_grad_operands(call, a, f, entry, step > 0));
      if (p.weight_grad) p.weight_grad->run(call.stream, weight_grad_operands(call, a, f, entry));
      if (s.bias_grad) {
        launch_column_sum(call.stream, dlogits, s.tokens, columns, false, a.column_sum_partial,
                          a.column_sum + entry);
      }
    }
    const Factor factor{alpha_, s.divisor_on_device() ? a.batch.scalars : nullptr};
    const bool in_place = s.input_grad && !sums_input_grad();
    if (s.input_grad && (a.input_grad_sum != nullptr || a.dlogits.residual != nullptr)) {
      if (a.mean_row != nullptr) {
        launch_mean_row(call.stream, t.student_weight, s.student.dtype, s.valid_vocab, s.student.hidden,
                        s.student.weight_ld, a.mean_row_partial, a.mean_row);
      }
      launch_input_grad(call.stream,
                        in_place ? static_cast<const float*>(t.student_input_grad) : a.input_grad_sum,
                        in_place ? s.input_grad_ld : s.student.hidden, a.dlogits.residual, a.mean_row, factor,
                        s.tokens, s.student.hidden, t.student_input_grad, s.gradient_dtype, s.input_grad_ld);
    }
    if (s.input_grad && s.has_labels) {
      launch_clear_ignored(call.stream, s.tokens, s.student.hidden, t.student_input_grad, s.gradient_dtype,
                           s.input_grad_ld, ignored_tokens(s, call));
    }
    if (s.weight_grad) clear_weight_grad_tail(s, call);
    if (s.bias_grad) {
      launch_bias_gradient(call.stream, a.column_sum, s.valid_vocab, s.vocab, factor, t.student_bias_grad);
    }
  }

  Settings settings_;
  Divergence kind_;
  Mixture mixture_;
  OnePassWeights weights_[2];  // by pass
  std::shared_ptr<const LtHandle> lt_;
  float alpha_, zero_ = 0, one_ = 1;
  Pieces token_blocks_, tiles_, gradient_tiles_;
  std::vector<LogitProducts> sweep_;              // [rows: size, tail][columns: size, tail]
  std::vector<GradientProducts> gradient_sweep_;  // [columns: size, tail]: both sweeps of the backward pass
};

}  // namespace

std::unique_ptr<Stage> make_chunked_vocab(const Settings& settings) {
  return std::make_unique<ChunkedVocab>(settings);
}

}  // namespace fljsd::cuda
