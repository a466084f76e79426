// SPDX-License-Identifier: Apache-2.0
#include "cuda/token_chunks.h"

#include <algorithm>

namespace fljsd::cuda {

// Arrays of one pass in the workspace.
struct TokenChunks::Arrays {
  BatchArrays batch;
  TileBuffers logits;                // of a chunk, all entries
  Dlogits dlogits;                   // [group, ld]
  float* input_grad_sum = nullptr;   // [group, hidden]: only where rounding residuals are added to it
  float* weight_grad_sum = nullptr;  // [valid_vocab, hidden]: only with several groups and a rounded result
  float* column_sum = nullptr;       // [valid_vocab]
  float* column_sum_partial = nullptr;
};

namespace {

// Whether the input gradient is rounded after its product, because rounding residuals of dlogits come in
// between.
bool rounds_input_grad(const Settings& s) {
  return wants_residuals(s) && s.gradient_dtype != FLJSD_F32;
}

// Whether the weight gradients of several groups are added up before they are rounded.
bool sums_weight_grad(const Settings& s, Index group) {
  return s.weight_grad && group < s.tokens && s.gradient_dtype != FLJSD_F32;
}

}  // namespace

TokenChunks::TokenChunks(const Settings& settings, fljsd_dtype logits_dtype, Index forward_chunk,
                         const ChunkSizes& backward)
    : settings_(settings),
      logits_dtype_(logits_dtype),
      kind_(divergence_kind(settings.beta)),
      mixture_(make_mixture(settings.beta, settings.temperature)),
      lt_(std::make_shared<LtHandle>()),
      sizes_{{forward_chunk, forward_chunk}, backward} {
  const Settings& s = settings_;
  if (s.tokens == 0) return;
  for (const fljsd_pass pass : {FLJSD_FORWARD, FLJSD_FORWARD_BACKWARD}) {
    if (!s.has(pass)) continue;
    logits_[pass] = {Pieces{s.tokens, sizes_[pass].chunk},
                     [&](Index rows) { return LogitProducts(lt_, s, rows, s.valid_vocab, logits_dtype_); }};
  }
  if (s.any_grad()) {
    gradients_ = {Pieces{s.tokens, backward.group}, [&](Index rows) { return make_gradients(rows); }};
  }
}

TokenChunks::GradientProducts TokenChunks::make_gradients(Index rows) const {
  const Settings& s = settings_;
  const bool sums = sums_weight_grad(s, sizes_[FLJSD_FORWARD_BACKWARD].group);
  GradientProducts p;
  if (s.input_grad) p.input_grad.emplace(lt_, input_grad_spec(s, rows, s.valid_vocab, rounds_input_grad(s)));
  if (s.weight_grad) p.weight_grad.emplace(lt_, weight_grad_spec(s, rows, s.valid_vocab, sums));
  return p;
}

TokenChunks::Arrays TokenChunks::lay_out(const Settings& s, fljsd_dtype logits_dtype, fljsd_pass pass,
                                         const ChunkSizes& sizes, Workspace& workspace, const Call* call) {
  const auto [chunk, group] = sizes;
  const Index ld = logits_ld(s.valid_vocab);
  Arrays a;
  a.batch = begin_batch(s, pass, workspace, call);
  a.logits = take_tile(workspace, chunk, s.valid_vocab, logits_dtype);
  if (pass == FLJSD_FORWARD) return a;
  a.dlogits = {workspace.take(s.student.dtype, group * ld), s.student.dtype, ld,
               static_cast<float>(dlogits_factor(s)), take_residuals(s, workspace, group)};
  if (rounds_input_grad(s)) a.input_grad_sum = workspace.take<float>(group * s.student.hidden);
  if (sums_weight_grad(s, group)) a.weight_grad_sum = workspace.take<float>(s.valid_vocab * s.student.hidden);
  if (s.bias_grad) {
    a.column_sum = workspace.take<float>(s.valid_vocab);
    a.column_sum_partial = workspace.take<float>(column_sum_partials(group) * s.valid_vocab);
  }
  return a;
}

Index TokenChunks::workspace_bytes(const Settings& settings, fljsd_dtype logits_dtype, fljsd_pass pass,
                                   const ChunkSizes& sizes) {
  Workspace measure(nullptr);
  lay_out(settings, logits_dtype, pass, sizes, measure, nullptr);
  return measure.used();
}

Index TokenChunks::workspace_bytes(fljsd_pass pass) const {
  return settings_.tokens == 0 ? 0 : workspace_bytes(settings_, logits_dtype_, pass, sizes_[pass]);
}

Gemm::Operands TokenChunks::input_grad_operands(const Call& call, const Arrays& a, Index first) const {
  const Settings& s = settings_;
  const GradientFactors f = gradient_factors(a.batch);
  return {a.dlogits.data,
          call.tensors.student_weight,
          a.input_grad_sum != nullptr
              ? a.input_grad_sum
              : at(call.tensors.student_input_grad, s.gradient_dtype, first * s.input_grad_ld),
          f.alpha,
          f.zero,
          a.logits.gemm_workspace};
}
Gemm::Operands TokenChunks::weight_grad_operands(const Call& call, const Arrays& a, Index first,
                                                 bool adds) const {
  const GradientFactors f = gradient_factors(a.batch);
  return {a.dlogits.data,
          at(a.batch.student_input, settings_.student.dtype, first * a.batch.student_input_ld),
          a.weight_grad_sum != nullptr ? a.weight_grad_sum : call.tensors.student_weight_grad,
          f.alpha,
          adds ? f.one : f.zero,
          a.logits.gemm_workspace};
}

void TokenChunks::run_gradients(const Call& call, const Arrays& a, Index first, Index rows) const {
  const Settings& s = settings_;
  const GradientProducts& p = gradients_.of(rows);
  if (p.input_grad) {
    p.input_grad->run(call.stream, input_grad_operands(call, a, first));
    finish_input_grad(s, call, a.batch, a.dlogits.residuals, a.input_grad_sum, first, rows);
  }
  if (p.weight_grad) p.weight_grad->run(call.stream, weight_grad_operands(call, a, first, first > 0));
  if (s.bias_grad) {
    launch_column_sum(call.stream, a.dlogits, rows, s.valid_vocab, first > 0, a.column_sum_partial,
                      a.column_sum);
  }
}

void TokenChunks::run(fljsd_pass pass, const Call& call) const {
  const Settings& s = settings_;
  const fljsd_tensors& t = call.tensors;
  Workspace workspace(call.workspace);
  const auto [chunk, group] = sizes_[pass];
  const Arrays a = lay_out(s, logits_dtype_, pass, sizes_[pass], workspace, &call);
  const bool backward = pass == FLJSD_FORWARD_BACKWARD;
  for (Index first = 0; first < s.tokens; first += chunk) {
    const Index rows = std::min(chunk, s.tokens - first), in_group = first % group;
    logits_[pass].of(rows).run(call, a.logits, first, 0);
    const Dlogits dlogits = a.dlogits.from_row(in_group);
    if (backward && in_group == 0)
      clear_residuals(call.stream, dlogits.residuals, std::min(group, s.tokens - first));
    launch_row_losses(
        call.stream, kind_, mixture_,
        {a.logits.student_logits, a.logits.teacher_logits, logits_dtype_, logits_ld(s.valid_vocab),
         a.batch.student_bias, a.batch.teacher_bias, rows, s.valid_vocab, ignored_tokens(s, call, first)},
        a.batch.token_loss + first, dlogits);
    const Index done = in_group + rows;
    if (backward && (done == group || first + rows == s.tokens)) {
      run_gradients(call, a, first - in_group, done);
    }
  }
  finish_losses(s, call, a.batch.token_loss);
  if (!backward) return;
  if (a.weight_grad_sum != nullptr) {
    launch_round(call.stream, a.weight_grad_sum, s.valid_vocab, s.student.hidden, t.student_weight_grad,
                 s.gradient_dtype, s.weight_grad_ld);
  }
  if (s.weight_grad) clear_weight_grad_tail(s, call);
  if (s.bias_grad) {
    launch_bias_gradient(call.stream, a.column_sum, s.valid_vocab, s.vocab, a.batch.gradient_factor,
                         t.student_bias_grad);
  }
}

void TokenChunks::tune(fljsd_pass pass, const Call& call) {
  run(pass, call);  // real data in every operand: the speed of a product depends on them
  Workspace workspace(call.workspace);
  const Arrays a = lay_out(settings_, logits_dtype_, pass, sizes_[pass], workspace, &call);
  if (pass == FLJSD_FORWARD_BACKWARD) {
    const bool several = sizes_[pass].group < settings_.tokens;  // groups, which are added up
    gradients_.each([&](GradientProducts& p, Index first) {
      if (p.input_grad) p.input_grad->tune(call.stream, input_grad_operands(call, a, first));
      if (p.weight_grad) p.weight_grad->tune(call.stream, weight_grad_operands(call, a, first, several));
    });
  }
  logits_[pass].each([&](LogitProducts& p, Index first) { p.tune(call, a.logits, first, 0); });
}

std::string TokenChunks::describe() const {
  std::string text;
  for (const fljsd_pass pass : {FLJSD_FORWARD, FLJSD_FORWARD_BACKWARD}) {
    if (settings_.tokens == 0 || !settings_.has(pass)) continue;
    text += std::string(pass == FLJSD_FORWARD ? "forward" : "forward and backward") + ": chunks of " +
            std::to_string(sizes_[pass].chunk) + " tokens";
    if (pass == FLJSD_FORWARD_BACKWARD)
      text += ", gradients of " + std::to_string(sizes_[pass].group) + " at a time";
    text += "\n";
    for (const LogitProducts& p : logits_[pass]) text += p.describe();
    if (pass == FLJSD_FORWARD) continue;
    for (const GradientProducts& p : gradients_) {
      if (p.input_grad) text += "  " + p.input_grad->describe() + "\n";
      if (p.weight_grad) text += "  " + p.weight_grad->describe() + "\n";
    }
  }
  return text;
}

}  // namespace fljsd::cuda
