// SPDX-License-Identifier: Apache-2.0
#include "cuda/backward_sweep.h"

namespace fljsd::cuda {
namespace {

// Whether the input gradient is added up in the workspace; an fp32 one is added up where it is wanted.
bool sums_in_workspace(const Settings& s) {
  return s.input_grad && s.gradient_dtype != FLJSD_F32;
}

}  // namespace

BackwardSweep::BackwardSweep(const Settings& settings, const std::shared_ptr<const LtHandle>& lt,
                             const Pieces& tiles)
    : settings_(settings),
      kind_(divergence_kind(settings.beta)),
      mixture_(make_mixture(settings.beta, settings.temperature)),
      tiles_(tiles),
      products_(tiles, [&](Index columns) { return make_products(lt, columns); }) {}

BackwardSweep::Products BackwardSweep::make_products(const std::shared_ptr<const LtHandle>& lt,
                                                     Index columns) const {
  const Settings& s = settings_;
  Products p{LogitProducts(lt, s, s.tokens, columns), std::nullopt, std::nullopt};
  if (s.input_grad) p.input_grad.emplace(lt, input_grad_spec(s, s.tokens, columns, sums_in_workspace(s)));
  if (s.weight_grad) p.weight_grad.emplace(lt, weight_grad_spec(s, s.tokens, columns, false));
  return p;
}

BackwardSweep::Arrays BackwardSweep::lay_out(const Settings& s, const Pieces& tiles, Workspace& workspace) {
  Arrays a;
  a.tile = take_tile(workspace, s.tokens, tiles.size);
  a.constants = static_cast<RowConstants*>(
      static_cast<void*>(workspace.take<std::byte>(s.tokens * row_constants_bytes)));
  const Index ld = logits_ld(tiles.size);
  a.dlogits = {workspace.take(s.student.dtype, s.tokens * ld), s.student.dtype, ld,
               static_cast<float>(dlogits_factor(s)), take_residuals(s, workspace, s.tokens)};
  if (sums_in_workspace(s)) a.input_grad_sum = workspace.take<float>(s.tokens * s.student.hidden);
  if (s.bias_grad) {
    a.column_sum = workspace.take<float>(s.valid_vocab);
    a.column_sum_partial = workspace.take<float>(column_sum_partials(s.tokens) * tiles.size);
  }
  a.certificate = take_certificate(s, workspace);
  return a;
}

// `adds`: to what earlier tiles left.
Gemm::Operands BackwardSweep::input_grad_operands(const Call& call, const BatchArrays& batch, const Arrays& a,
                                                  Index entry, bool adds) const {
  const Settings& s = settings_;
  const GradientFactors f = gradient_factors(batch);
  return {a.dlogits.data,
          at(call.tensors.student_weight, s.student.dtype, entry * s.student.weight_ld),
          a.input_grad_sum != nullptr ? a.input_grad_sum : call.tensors.student_input_grad,
          f.alpha,
          adds ? f.one : f.zero,
          a.tile.gemm_workspace};
}
Gemm::Operands BackwardSweep::weight_grad_operands(const Call& call, const BatchArrays& batch,
                                                   const Arrays& a, Index entry) const {
  const GradientFactors f = gradient_factors(batch);
  return {a.dlogits.data,
          batch.student_input,
          at(call.tensors.student_weight_grad, settings_.gradient_dtype, entry * settings_.weight_grad_ld),
          f.alpha,
          f.zero,
          a.tile.gemm_workspace};
}

LogitTile BackwardSweep::run_logits(const Call& call, const BatchArrays& batch, const Arrays& a,
                                    Index i) const {
  products_.of(tiles_.length(i)).logits.run(call, a.tile, 0, tiles_.start(i));
  return logit_tile(settings_, call, batch, a.tile, 0, settings_.tokens, tiles_.start(i), tiles_.length(i));
}

void BackwardSweep::run(const Call& call, const BatchArrays& batch, const Arrays& a,
                        std::optional<Index> ready, bool certifies) const {
  const Settings& s = settings_;
  const Index count = tiles_.count(), start = ready.value_or(count - 1);
  clear_residuals(call.stream, a.dlogits.residuals, s.tokens);
  for (Index step = 0; step < count; ++step) {
    const Index i = (start - step + count) % count, entry = tiles_.start(i), columns = tiles_.length(i);
    const Products& p = products_.of(columns);
    const bool first = step == 0;
    if (!first || !ready) p.logits.run(call, a.tile, 0, entry);
    Dlogits dlogits = a.dlogits;
    dlogits.ld = logits_ld(columns);
    dlogits.residuals.first_entry = entry;
    launch_tile_dlogits(call.stream, kind_, mixture_,
                        logit_tile(s, call, batch, a.tile, 0, s.tokens, entry, columns), a.constants, dlogits,
                        {certifies ? a.certificate.dlogit_sums : nullptr, first});
    if (p.input_grad) p.input_grad->run(call.stream, input_grad_operands(call, batch, a, entry, !first));
    if (p.weight_grad) p.weight_grad->run(call.stream, weight_grad_operands(call, batch, a, entry));
    if (s.bias_grad) {
      launch_column_sum(call.stream, dlogits, s.tokens, columns, false, a.column_sum_partial,
                        a.column_sum + entry);
    }
  }
  if (certifies && a.certificate.wanted()) certify(call, batch, a);
  finish(call, batch, a);
}

void BackwardSweep::certify(const Call& call, const BatchArrays& batch, const Arrays& a) const {
  const Settings& s = settings_;
  launch_certify(call.stream, mixture_, a.certificate, a.constants, s.tokens, a.dlogits.factor,
                 dlogit_sum_additions(tiles_.size, tiles_.count()));
  Repair r;
  r.certificate = a.certificate;
  r.constants = a.constants;
  r.tokens = s.tokens, r.vocab = s.valid_vocab;
  r.student = s.student, r.teacher = s.teacher;
  r.tensors = call.tensors;
  r.student_bias = batch.student_bias, r.teacher_bias = batch.teacher_bias;
  r.alpha = batch.gradient_factor;
  r.token_loss = batch.token_loss;
  if (s.input_grad) {
    const bool sums = a.input_grad_sum != nullptr;
    r.input_grad = sums ? a.input_grad_sum : static_cast<float*>(call.tensors.student_input_grad);
    r.input_grad_ld = sums ? s.student.hidden : s.input_grad_ld;
  }
  if (s.weight_grad) {
    r.weight_grad = call.tensors.student_weight_grad;
    r.weight_grad_dtype = s.gradient_dtype, r.weight_grad_ld = s.weight_grad_ld;
  }
  r.column_sum = a.column_sum;
  launch_repair(call.stream, s.device, mixture_, r);
}

void BackwardSweep::finish(const Call& call, const BatchArrays& batch, const Arrays& a) const {
  const Settings& s = settings_;
  if (s.input_grad) finish_input_grad(s, call, batch, a.dlogits.residuals, a.input_grad_sum, 0, s.tokens);
  if (s.weight_grad) clear_weight_grad_tail(s, call);
  if (s.bias_grad) {
    launch_bias_gradient(call.stream, a.column_sum, s.valid_vocab, s.vocab, batch.gradient_factor,
                         call.tensors.student_bias_grad);
  }
}

void BackwardSweep::tune(const Call& call, const BatchArrays& batch, const Arrays& a) {
  products_.each([&](Products& p, Index entry) {
    if (p.input_grad) p.input_grad->tune(call.stream, input_grad_operands(call, batch, a, entry, false));
    if (p.weight_grad) p.weight_grad->tune(call.stream, weight_grad_operands(call, batch, a, entry));
    p.logits.tune(call, a.tile, 0, entry);
  });
}

std::string BackwardSweep::describe() const {
  std::string text;
  for (const Products& p : products_) {
    text += p.logits.describe();
    if (p.input_grad) text += "  " + p.input_grad->describe() + "\n";
    if (p.weight_grad) text += "  " + p.weight_grad->describe() + "\n";
  }
  return text;
}

}  // namespace fljsd::cuda
