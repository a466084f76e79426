// SPDX-License-Identifier: Apache-2.0
#include "cuda/token_chunks.h"

#include <algorithm>
#include <type_traits>

#include "cuda/backward_sweep.h"

namespace fljsd::cuda {

// Arrays of one pass in the workspace.
struct TokenChunks::Arrays {
  BatchArrays batch;
  void* gemm_workspace = nullptr;
  void* student_logits = nullptr;  // [chunk, ld]
  void* teacher_logits = nullptr;
  Dlogits dlogits;                   // [group, ld]
  float* input_grad_sum = nullptr;   // [group, hidden]: only where rounding residuals are added to it
  float* weight_grad_sum = nullptr;  // [valid_vocab, hidden]: only with several groups and a rounded result
  float* column_sum = nullptr;       // [valid_vocab]
  float* column_sum_partial = nullptr;
};

namespace {

// Whether the input gradient is rounded after its product, because rounding residuals of dlogits come in
// between.
bool sums_input_grad(const Settings& s) {
  return wants_residuals(s) && s.gradient_dtype != FLJSD_F32;
}

Index logits_ld(const Settings& s) {
  return round_up(s.valid_vocab, 64);  // rows at multiples of 128 bytes
}

}  // namespace

TokenChunks::TokenChunks(const Settings& settings, fljsd_dtype logits_dtype, Index forward_chunk,
                         const ChunkSizes& backward)
    : settings_(settings),
      logits_dtype_(logits_dtype),
      kind_(divergence_kind(settings.beta)),
      mixture_(make_mixture(settings.beta, settings.temperature)),
      lt_(std::make_shared<LtHandle>()),
      sizes_{{forward_chunk, forward_chunk}, backward},
      alpha_(static_cast<float>(gradient_alpha(settings))) {
  if (settings_.tokens == 0) return;
  const auto make = [&](auto& by_length, Index length, const auto& products) {
    const Index tail = settings_.tokens % length;
    by_length.full_length = length;
    using Products = std::decay_t<decltype(*by_length.full)>;
    by_length.full = std::make_unique<Products>(products(length));
    if (tail != 0) by_length.tail = std::make_unique<Products>(products(tail));
  };
  for (const fljsd_pass pass : {FLJSD_FORWARD, FLJSD_FORWARD_BACKWARD}) {
    if (pass == FLJSD_FORWARD_BACKWARD && !settings_.any_grad()) continue;
    make(logits_[pass], sizes_[pass].chunk, [&](Index rows) { return make_logits(rows); });
  }
  if (settings_.any_grad()) {
    make(gradients_, sizes_[FLJSD_FORWARD_BACKWARD].group, [&](Index rows) { return make_gradients(rows); });
  }
}

TokenChunks::LogitProducts TokenChunks::make_logits(Index rows) const {
  const Settings& s = settings_;
  const auto product = [&](const char* what, const Model& model) {
    return Gemm(lt_, {.what = what,
                      .m = rows,
                      .n = s.valid_vocab,
                      .k = model.hidden,
                      .transpose_b = true,
                      .lda = model.input_ld,
                      .ldb = model.weight_ld,
                      .ldc = logits_ld(s),
                      .in = model.dtype,
                      .out = logits_dtype_});
  };
  return {product("student logits", s.student), product("teacher logits", s.teacher)};
}

TokenChunks::GradientProducts TokenChunks::make_gradients(Index rows) const {
  const Settings& s = settings_;
  const Index ld = logits_ld(s);
  GradientProducts products;
  const Scalars scalars = s.divisor_on_device() ? Scalars::device : Scalars::host;
  if (s.input_grad) {
    const bool sums = sums_input_grad(s);
    products.input_grad.emplace(
        lt_, input_grad_spec(s, rows, s.valid_vocab, ld, sums ? FLJSD_F32 : s.gradient_dtype,
                             sums ? s.student.hidden : s.input_grad_ld));
  }
  if (s.weight_grad) {
    const bool sum = sizes_[FLJSD_FORWARD_BACKWARD].group < s.tokens && s.gradient_dtype != FLJSD_F32;
    products.weight_grad.emplace(lt_, GemmSpec{.what = "student weight gradient",
                                               .m = s.valid_vocab,
                                               .n = s.student.hidden,
                                               .k = rows,
                                               .transpose_a = true,
                                               .lda = ld,
                                               .ldb = s.has_labels ? s.student.hidden : s.student.input_ld,
                                               .ldc = sum ? s.student.hidden : s.weight_grad_ld,
                                               .in = s.student.dtype,
                                               .out = sum ? FLJSD_F32 : s.gradient_dtype,
                                               .scalars = scalars});
  }
  return products;
}

TokenChunks::Arrays TokenChunks::lay_out(const Settings& s, fljsd_dtype logits_dtype, fljsd_pass pass,
                                         const ChunkSizes& sizes, Workspace& workspace, const Call* call) {
  const auto [chunk, group] = sizes;
  const Index ld = logits_ld(s);
  Arrays a;
  a.batch = begin_batch(s, pass, workspace, call);
  a.gemm_workspace = workspace.take<std::byte>(Gemm::workspace_size);
  a.student_logits = workspace.take(logits_dtype, chunk * ld);
  a.teacher_logits = workspace.take(logits_dtype, chunk * ld);
  if (pass == FLJSD_FORWARD) return a;
  a.dlogits = {workspace.take(s.student.dtype, group * ld), s.student.dtype, ld,
               static_cast<float>(dlogits_factor(s)), take_residuals(s, workspace, group)};
  if (sums_input_grad(s)) a.input_grad_sum = workspace.take<float>(group * s.student.hidden);
  if (s.weight_grad && group < s.tokens && s.gradient_dtype != FLJSD_F32) {
    a.weight_grad_sum = workspace.take<float>(s.valid_vocab * s.student.hidden);
  }
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

TokenChunks::Factors TokenChunks::factors(const Arrays& a) const {
  if (!settings_.divisor_on_device()) return {&alpha_, &zero_, &one_};
  return {&a.batch.scalars->alpha, &a.batch.scalars->zero, &a.batch.scalars->one};
}

void TokenChunks::run_logits(const LogitProducts& products, const Call& call, const Arrays& a,
                             Index first) const {
  const Settings& s = settings_;
  const fljsd_tensors& t = call.tensors;
  products.student.run(call.stream, {at(t.student_input, s.student.dtype, first * s.student.input_ld),
                                     t.student_weight, a.student_logits, &one_, &zero_, a.gemm_workspace});
  products.teacher.run(call.stream, {at(t.teacher_input, s.teacher.dtype, first * s.teacher.input_ld),
                                     t.teacher_weight, a.teacher_logits, &one_, &zero_, a.gemm_workspace});
}

void TokenChunks::run_gradients(const Call& call, const Arrays& a, Index first, Index rows) const {
  const Settings& s = settings_;
  const fljsd_tensors& t = call.tensors;
  const Factors f = factors(a);
  const GradientProducts& p = gradients_.of(rows);
  if (p.input_grad) {
    void* out = at(t.student_input_grad, s.gradient_dtype, first * s.input_grad_ld);
    const bool sums = a.input_grad_sum != nullptr;
    void* product = sums ? a.input_grad_sum : out;
    p.input_grad->run(call.stream,
                      {a.dlogits.data, t.student_weight, product, f.alpha, f.zero, a.gemm_workspace});
    if (wants_residuals(s)) {
      launch_residual_product(call.stream, a.dlogits.residuals,
                              {.rows = rows,
                               .columns = s.student.hidden,
                               .weight = t.student_weight,
                               .weight_ld = s.student.weight_ld,
                               .out = static_cast<float*>(product),
                               .out_ld = sums ? s.student.hidden : s.input_grad_ld},
                              {alpha_, s.divisor_on_device() ? a.batch.scalars : nullptr});
    }
    if (sums) {
      launch_round(call.stream, a.input_grad_sum, rows, s.student.hidden, out, s.gradient_dtype,
                   s.input_grad_ld);
    }
    if (s.has_labels) {
      launch_clear_ignored(call.stream, rows, s.student.hidden, out, s.gradient_dtype, s.input_grad_ld,
                           ignored_tokens(s, call, first));
    }
  }
  if (p.weight_grad) {
    void* sum = a.weight_grad_sum != nullptr ? a.weight_grad_sum : t.student_weight_grad;
    p.weight_grad->run(
        call.stream,
        {a.dlogits.data, at(a.batch.student_input, s.student.dtype, first * a.batch.student_input_ld), sum,
         f.alpha, first == 0 ? f.zero : f.one, a.gemm_workspace});
  }
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
    run_logits(logits_[pass].of(rows), call, a, first);
    const Dlogits dlogits = a.dlogits.from_row(in_group);
    if (backward && in_group == 0)
      clear_residuals(call.stream, dlogits.residuals, std::min(group, s.tokens - first));
    launch_row_losses(call.stream, kind_, mixture_,
                      {a.student_logits, a.teacher_logits, logits_dtype_, logits_ld(s), a.batch.student_bias,
                       a.batch.teacher_bias, rows, s.valid_vocab, ignored_tokens(s, call, first)},
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
    launch_bias_gradient(call.stream, a.column_sum, s.valid_vocab, s.vocab,
                         {alpha_, s.divisor_on_device() ? a.batch.scalars : nullptr}, t.student_bias_grad);
  }
}

void TokenChunks::tune(fljsd_pass pass, const Call& call) {
  run(pass, call);  // real data in every operand: the speed of a product depends on them
  const Settings& s = settings_;
  const fljsd_tensors& t = call.tensors;
  Workspace workspace(call.workspace);
  const Arrays a = lay_out(s, logits_dtype_, pass, sizes_[pass], workspace, &call);
  // f(products, their first token): of every length, where it is used.
  const auto each_length = [&](const auto& products, const auto& f) {
    f(*products.full, Index{0});
    if (products.tail != nullptr) f(*products.tail, s.tokens - s.tokens % products.full_length);
  };
  if (pass == FLJSD_FORWARD_BACKWARD) {
    const Factors f = factors(a);
    const bool several = gradients_.full_length < s.tokens;  // groups, which are added up
    each_length(gradients_, [&](GradientProducts& p, Index first) {
      if (p.input_grad) {
        void* product = a.input_grad_sum != nullptr
                            ? a.input_grad_sum
                            : at(t.student_input_grad, s.gradient_dtype, first * s.input_grad_ld);
        p.input_grad->tune(call.stream,
                           {a.dlogits.data, t.student_weight, product, f.alpha, f.zero, a.gemm_workspace});
      }
      if (p.weight_grad) {
        void* sum = a.weight_grad_sum != nullptr ? a.weight_grad_sum : t.student_weight_grad;
        p.weight_grad->tune(
            call.stream,
            {a.dlogits.data, at(a.batch.student_input, s.student.dtype, first * a.batch.student_input_ld),
             sum, f.alpha, several ? f.one : f.zero, a.gemm_workspace});
      }
    });
  }
  each_length(logits_[pass], [&](LogitProducts& p, Index first) {
    p.student.tune(call.stream, {at(t.student_input, s.student.dtype, first * s.student.input_ld),
                                 t.student_weight, a.student_logits, &one_, &zero_, a.gemm_workspace});
    p.teacher.tune(call.stream, {at(t.teacher_input, s.teacher.dtype, first * s.teacher.input_ld),
                                 t.teacher_weight, a.teacher_logits, &one_, &zero_, a.gemm_workspace});
  });
}

std::string TokenChunks::describe() const {
  std::string text;
  for (const fljsd_pass pass : {FLJSD_FORWARD, FLJSD_FORWARD_BACKWARD}) {
    if (logits_[pass].full == nullptr) continue;
    text += std::string(pass == FLJSD_FORWARD ? "forward" : "forward and backward") + ": chunks of " +
            std::to_string(sizes_[pass].chunk) + " tokens";
    if (pass == FLJSD_FORWARD_BACKWARD)
      text += ", gradients of " + std::to_string(sizes_[pass].group) + " at a time";
    text += "\n";
    for (const LogitProducts* p : {logits_[pass].full.get(), logits_[pass].tail.get()}) {
      if (p != nullptr) text += p->describe();
    }
    if (pass == FLJSD_FORWARD) continue;
    for (const GradientProducts* p : {gradients_.full.get(), gradients_.tail.get()}) {
      if (p != nullptr && p->input_grad) text += "  " + p->input_grad->describe() + "\n";
      if (p != nullptr && p->weight_grad) text += "  " + p->weight_grad->describe() + "\n";
    }
  }
  return text;
}

}  // namespace fljsd::cuda
