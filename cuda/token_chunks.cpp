// SPDX-License-Identifier: Apache-2.0
#include "cuda/token_chunks.h"

#include <algorithm>

#include "cuda/failure.h"

namespace fljsd::cuda {

// Arrays of one pass in the workspace.
struct TokenChunks::Arrays {
  BatchArrays batch;
  void* gemm_workspace = nullptr;
  void* student_logits = nullptr;  // [chunk, ld]
  void* teacher_logits = nullptr;
  Dlogits dlogits;                   // [chunk, ld]
  float* weight_grad_sum = nullptr;  // [valid_vocab, hidden]: only with several chunks and a rounded result
  float* column_sum = nullptr;       // [valid_vocab]
  float* column_sum_partial = nullptr;
  float* mean_row = nullptr;  // [hidden]: with the dlogits' residual, where dlogits are rounded
  float* mean_row_partial = nullptr;
};

namespace {

Index logits_ld(const Settings& s) {
  return round_up(s.valid_vocab, 64);  // rows at multiples of 128 bytes
}

}  // namespace

TokenChunks::TokenChunks(const Settings& settings, fljsd_dtype logits_dtype, Index forward_chunk,
                         Index backward_chunk)
    : settings_(settings),
      logits_dtype_(logits_dtype),
      kind_(divergence_kind(settings.beta)),
      mixture_(make_mixture(settings.beta, settings.temperature)),
      lt_(std::make_shared<LtHandle>()),
      chunk_{forward_chunk, backward_chunk},
      alpha_(static_cast<float>(gradient_alpha(settings))) {
  if (settings_.tokens == 0) return;
  for (const fljsd_pass pass : {FLJSD_FORWARD, FLJSD_FORWARD_BACKWARD}) {
    if (pass == FLJSD_FORWARD_BACKWARD && !settings_.any_grad()) continue;
    full_[pass] = std::make_unique<Products>(make_products(pass, chunk_[pass]));
    const Index tail = settings_.tokens % chunk_[pass];
    if (tail != 0) tail_[pass] = std::make_unique<Products>(make_products(pass, tail));
  }
}

TokenChunks::Products TokenChunks::make_products(fljsd_pass pass, Index rows) const {
  const Settings& s = settings_;
  const Index ld = logits_ld(s);
  Products products{Gemm(lt_, {.what = "student logits",
                               .m = rows,
                               .n = s.valid_vocab,
                               .k = s.student.hidden,
                               .transpose_b = true,
                               .lda = s.student.input_ld,
                               .ldb = s.student.weight_ld,
                               .ldc = ld,
                               .in = s.student.dtype,
                               .out = logits_dtype_}),
                    Gemm(lt_, {.what = "teacher logits",
                               .m = rows,
                               .n = s.valid_vocab,
                               .k = s.teacher.hidden,
                               .transpose_b = true,
                               .lda = s.teacher.input_ld,
                               .ldb = s.teacher.weight_ld,
                               .ldc = ld,
                               .in = s.teacher.dtype,
                               .out = logits_dtype_}),
                    std::nullopt, std::nullopt};
  if (pass == FLJSD_FORWARD) return products;
  const Scalars scalars = s.divisor_on_device() ? Scalars::device : Scalars::host;
  if (s.input_grad) {
    products.input_grad.emplace(lt_, GemmSpec{.what = "student input gradient",
                                              .m = rows,
                                              .n = s.student.hidden,
                                              .k = s.valid_vocab,
                                              .lda = ld,
                                              .ldb = s.student.weight_ld,
                                              .ldc = s.input_grad_ld,
                                              .in = s.student.dtype,
                                              .out = s.gradient_dtype,
                                              .scalars = scalars});
  }
  if (s.weight_grad) {
    const bool sum = chunk_[pass] < s.tokens && s.gradient_dtype != FLJSD_F32;
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
                                         Index chunk, Workspace& workspace, const Call* call) {
  const Index ld = logits_ld(s);
  Arrays a;
  a.batch = begin_batch(s, pass, workspace, call);
  a.gemm_workspace = workspace.take<std::byte>(Gemm::workspace_size);
  a.student_logits = workspace.take(logits_dtype, chunk * ld);
  a.teacher_logits = workspace.take(logits_dtype, chunk * ld);
  if (pass == FLJSD_FORWARD) return a;
  a.dlogits = {workspace.take(s.student.dtype, chunk * ld), s.student.dtype, ld,
               static_cast<float>(dlogits_factor(s)), nullptr};
  if (s.input_grad && s.student.dtype != FLJSD_F32) {
    a.dlogits.residual = workspace.take<float>(chunk);
    a.mean_row = workspace.take<float>(s.student.hidden);
    a.mean_row_partial = workspace.take<float>(mean_row_partials * s.student.hidden);
  }
  if (s.weight_grad && chunk < s.tokens && s.gradient_dtype != FLJSD_F32) {
    a.weight_grad_sum = workspace.take<float>(s.valid_vocab * s.student.hidden);
  }
  if (s.bias_grad) {
    a.column_sum = workspace.take<float>(s.valid_vocab);
    a.column_sum_partial = workspace.take<float>(column_sum_partials(chunk) * s.valid_vocab);
  }
  return a;
}

Index TokenChunks::workspace_bytes(const Settings& settings, fljsd_dtype logits_dtype, fljsd_pass pass,
                                   Index chunk) {
  Workspace measure(nullptr);
  lay_out(settings, logits_dtype, pass, chunk, measure, nullptr);
  return measure.used();
}

Index TokenChunks::workspace_bytes(fljsd_pass pass) const {
  return settings_.tokens == 0 ? 0 : workspace_bytes(settings_, logits_dtype_, pass, chunk_[pass]);
}

TokenChunks::Products& TokenChunks::products(fljsd_pass pass, Index rows) const {
  return rows == chunk_[pass] ? *full_[pass] : *tail_[pass];
}

void TokenChunks::run_logits(const Products& products, const Call& call, const Arrays& a, Index first) const {
  const Settings& s = settings_;
  const fljsd_tensors& t = call.tensors;
  products.student_logits.run(
      call.stream, {at(t.student_input, s.student.dtype, first * s.student.input_ld), t.student_weight,
                    a.student_logits, &one_, &zero_, a.gemm_workspace});
  products.teacher_logits.run(
      call.stream, {at(t.teacher_input, s.teacher.dtype, first * s.teacher.input_ld), t.teacher_weight,
                    a.teacher_logits, &one_, &zero_, a.gemm_workspace});
}

void TokenChunks::run(fljsd_pass pass, const Call& call) const {
  const Settings& s = settings_;
  const fljsd_tensors& t = call.tensors;
  Workspace workspace(call.workspace);
  const Index chunk = chunk_[pass];
  const Arrays a = lay_out(s, logits_dtype_, pass, chunk, workspace, &call);
  const bool backward = pass == FLJSD_FORWARD_BACKWARD;
  const bool on_device = s.divisor_on_device();
  const float* alpha = on_device ? &a.batch.scalars->alpha : &alpha_;
  const float* zero = on_device ? &a.batch.scalars->zero : &zero_;
  const float* one = on_device ? &a.batch.scalars->one : &one_;

  const Factor factor{alpha_, on_device ? a.batch.scalars : nullptr};
  if (a.mean_row != nullptr) {
    launch_mean_row(call.stream, t.student_weight, s.student.dtype, s.valid_vocab, s.student.hidden,
                    s.student.weight_ld, a.mean_row_partial, a.mean_row);
  }

  for (Index first = 0; first < s.tokens; first += chunk) {
    const Index rows = std::min(chunk, s.tokens - first);
    const Products& p = products(pass, rows);
    run_logits(p, call, a, first);
    launch_row_losses(call.stream, s.device, kind_, mixture_,
                      {a.student_logits, a.teacher_logits, logits_dtype_, logits_ld(s), a.batch.student_bias,
                       a.batch.teacher_bias, rows, s.valid_vocab, ignored_tokens(s, call, first)},
                      a.batch.token_loss + first, a.dlogits);
    if (!backward) continue;
    if (p.input_grad) {
      void* out = at(t.student_input_grad, s.gradient_dtype, first * s.input_grad_ld);
      const bool give_back = a.dlogits.residual != nullptr;
      if (give_back) {
        launch_input_grad(call.stream, nullptr, 0, a.dlogits.residual, a.mean_row, factor, rows,
                          s.student.hidden, out, s.gradient_dtype, s.input_grad_ld);
      }
      p.input_grad->run(call.stream, {a.dlogits.data, t.student_weight, out, alpha, give_back ? one : zero,
                                      a.gemm_workspace});
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
           alpha, first == 0 ? zero : one, a.gemm_workspace});
    }
    if (s.bias_grad) {
      launch_column_sum(call.stream, a.dlogits, rows, s.valid_vocab, first > 0, a.column_sum_partial,
                        a.column_sum);
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
    launch_bias_gradient(call.stream, a.column_sum, s.valid_vocab, s.vocab, factor, t.student_bias_grad);
  }
}

void TokenChunks::tune(fljsd_pass pass, const Call& call) {
  run(pass, call);  // real data in every operand: the speed of a product depends on them
  const Settings& s = settings_;
  const fljsd_tensors& t = call.tensors;
  Workspace workspace(call.workspace);
  const Arrays a = lay_out(s, logits_dtype_, pass, chunk_[pass], workspace, &call);
  const bool on_device = s.divisor_on_device();
  const float* alpha = on_device ? &a.batch.scalars->alpha : &alpha_;
  const float* zero = on_device ? &a.batch.scalars->zero : &zero_;
  const float* one = on_device ? &a.batch.scalars->one : &one_;
  Products& p = *full_[pass];
  if (p.input_grad) {
    p.input_grad->tune(
        call.stream, {a.dlogits.data, t.student_weight, t.student_input_grad, alpha, zero, a.gemm_workspace});
  }
  if (p.weight_grad) {
    p.weight_grad->tune(call.stream,
                        {a.dlogits.data, a.batch.student_input,
                         a.weight_grad_sum != nullptr ? a.weight_grad_sum : t.student_weight_grad, alpha,
                         a.weight_grad_sum != nullptr ? one : zero, a.gemm_workspace});
  }
  p.student_logits.tune(
      call.stream, {t.student_input, t.student_weight, a.student_logits, &one_, &zero_, a.gemm_workspace});
  p.teacher_logits.tune(
      call.stream, {t.teacher_input, t.teacher_weight, a.teacher_logits, &one_, &zero_, a.gemm_workspace});
}

std::string TokenChunks::describe() const {
  std::string text;
  for (const fljsd_pass pass : {FLJSD_FORWARD, FLJSD_FORWARD_BACKWARD}) {
    if (full_[pass] == nullptr) continue;
    text += std::string(pass == FLJSD_FORWARD ? "forward" : "forward and backward") + ": chunks of " +
            std::to_string(chunk_[pass]) + " tokens\n";
    for (const Products* p : {full_[pass].get(), tail_[pass].get()}) {
      if (p == nullptr) continue;
      text += "  " + p->student_logits.describe() + "\n  " + p->teacher_logits.describe() + "\n";
      if (p->input_grad) text += "  " + p->input_grad->describe() + "\n";
      if (p->weight_grad) text += "  " + p->weight_grad->describe() + "\n";
    }
  }
  return text;
}

}  // namespace fljsd::cuda
