// SPDX-License-Identifier: Apache-2.0
#include "verify/audit/rounding_places.h"

#include <algorithm>

namespace fljsd {
namespace {

std::string format_name(Storage storage, DType input) {
  switch (dtype_of(storage, input)) {
    case DType::bf16: return "bf16";
    case DType::f16: return "fp16";
    case DType::f32: return "fp32";
    case DType::f64: return "float64";
  }
  return "?";
}

}  // namespace

CandidateInfo candidate_info(const RoundingModel& model, DType input) {
  const Pipeline& p = model.pipeline;
  const bool one_pass = p.formula == Formula::one_pass;
  const bool autograd = p.formula == Formula::log_mixture_autograd;
  const auto kept = [&](Storage storage) { return format_name(storage, input); };
  // The one-pass sums replace the log-softmax and are fp32 by design.
  const std::string arithmetic = one_pass ? name(Arithmetic::fp32) : name(p.arithmetic);

  CandidateInfo info;
  info.name = model.name;
  info.description = model.description;
  info.accuracy_class = model.accuracy_class;
  info.places = {
      {"logits", kept(p.logits)},
      {"logits over temperature", kept(p.scaled_logits)},
      {"log-softmax", one_pass ? "" : kept(p.log_softmax)},
      {"divergence", arithmetic},
      {"loss", kept(p.loss)},
      {"gradient of the log-softmax", autograd ? kept(p.log_softmax_grad) : ""},
      {"gradient before the temperature", kept(p.scaled_logits_grad)},
      {"gradient of the logits", kept(p.dlogits)},
      {"sums of the gradients", name(p.accumulation)},
      {"gradients", kept(p.gradients)},
  };
  info.formula = name(p.formula);
  std::replace(info.formula.begin(), info.formula.end(), '-', ' ');
  info.chunked_weight_grad = p.chunking == Chunking::by_sizes;
  info.guarded = p.guarded;
  return info;
}

CandidateInfo candidate_info(const Program& program) {
  CandidateInfo info;
  info.name = program.name;
  info.description = program.candidate->name();
  info.accuracy_class = program.candidate->declaration().accuracy_class;
  info.places = candidate_info(rounding_models().front(), DType::bf16).places;
  for (RoundingPlace& place : info.places) place.format.clear();
  info.is_model = false;
  return info;
}

}  // namespace fljsd
