// SPDX-License-Identifier: Apache-2.0
#include "reference/rounding/models.h"

#include <algorithm>

namespace fljsd {
namespace {

// fp32 everywhere, and what is handed from one kernel to the next kept in fp32 too.
constexpr Pipeline fp32_inside{.logits = Storage::fp32,
                               .scaled_logits = Storage::fp32,
                               .log_softmax = Storage::fp32,
                               .arithmetic = Arithmetic::fp32,
                               .formula = Formula::softplus,
                               .log_softmax_grad = Storage::fp32,
                               .scaled_logits_grad = Storage::fp32,
                               .dlogits = Storage::input,
                               .accumulation = Arithmetic::fp32,
                               .loss = Storage::fp32,
                               .gradients = Storage::input};

// PyTorch without a compiler, as Liger-Kernel's benchmark of this operation states its baseline. Every
// operation is a kernel of its own that computes in fp32 and stores in the format of its output:
//
//   linear            bf16 logits, summed in fp32
//   / temperature     bf16
//   log_softmax       bf16; x − max − log Σ inside
//   .to(float)        from here on fp32: exp, lerp, log, KLDivLoss(log_target), sums, division by the number
//                     of tokens
//   .to(bf16)         the loss
//
// and backwards: the cast to float returns a bf16 gradient of log q; log_softmax's backward reads that and
// its bf16 output and stores bf16, g − e^{log q}·Σ g, where the e^{log q} no longer add up to 1; the division
// by the temperature stores bf16; the two products sum in fp32 and store bf16. That baseline has no endpoints
// (it returns about 0 at beta = 0 and 1) and fails on a batch of ignored tokens only; the model takes
// KLDivLoss at the endpoints, as the same project's tests do, and gives 0.
constexpr Pipeline torch_eager() {
  Pipeline p = fp32_inside;
  p.logits = p.scaled_logits = p.log_softmax = Storage::input;
  p.log_softmax_grad = p.scaled_logits_grad = p.dlogits = Storage::input;
  p.formula = Formula::log_mixture_autograd;
  p.guarded = false;
  p.loss = Storage::input;
  return p;
}

// The same program through torch.compile. The products are library calls with bf16 results; everything
// between them becomes one kernel forward and one backward that load bf16, compute in fp32, and drop the
// casts to bf16 in between.
constexpr Pipeline torch_compile() {
  Pipeline p = torch_eager();
  p.scaled_logits = p.log_softmax = p.log_softmax_grad = p.scaled_logits_grad = Storage::fp32;
  return p;
}

// Liger-Kernel's fused linear JSD: chunks of tokens; bf16 logits cast to fp32; temperature, log-softmax and
// JSD in fp32; dlogits cast to bf16; each chunk's weight gradient a bf16 product added to a bf16 total; an
// fp32 loss.
constexpr Pipeline liger() {
  Pipeline p = fp32_inside;
  p.logits = Storage::input;
  p.formula = Formula::log_mixture;
  p.guarded = false;
  p.chunking = Chunking::by_sizes;
  return p;
}

constexpr Pipeline with_formula(Pipeline p, Formula formula) {
  p.formula = formula;
  return p;
}

constexpr Pipeline one_pass_on(Storage logits) {
  Pipeline p = with_formula(fp32_inside, Formula::one_pass);
  p.logits = logits;
  return p;
}

// What this project's stages with fp32 logits give on an H100 or H200: the tensor cores' sums bit for bit
// (tensor_core.h), and after them fp32 as above.
constexpr Pipeline hopper() {
  Pipeline p = with_formula(fp32_inside, Formula::softplus);
  p.logit_sum = LogitSum::hopper_tensor_core;
  return p;
}

constexpr RoundingModel models[] = {
    {"torch-eager-bf16",
     "PyTorch without a compiler: logits, log-softmax, their gradients and the loss stored as the input.",
     torch_eager(), AccuracyClass::bf16_logits},
    {"torch-compile",
     "PyTorch compiled: logits and dlogits stored as the input, fp32 between them, loss stored as the input.",
     torch_compile(), AccuracyClass::bf16_logits},
    {"liger",
     "Liger-Kernel to 0.8.1, as published (0.3.1): logits and dlogits stored as the input, fp32 between "
     "them, weight gradient summed over chunks in the input's format. Later releases keep fp32 logits.",
     liger(), AccuracyClass::bf16_logits},
    {"one-pass-bf16", "One-pass statistics and softplus gradients on logits stored as the input.",
     one_pass_on(Storage::input), AccuracyClass::bf16_logits},
    {"fp32-logits", "fp32 logits, log-mixture formula, dlogits stored as the input, gradients rounded once.",
     with_formula(fp32_inside, Formula::log_mixture), AccuracyClass::fp32_logits},
    {"fp32-logits-softplus",
     "fp32 logits, softplus formula, dlogits stored as the input, gradients rounded once.",
     with_formula(fp32_inside, Formula::softplus), AccuracyClass::fp32_logits},
    {"one-pass-fp32",
     "One-pass statistics and softplus gradients on fp32 logits, dlogits stored as the input.",
     one_pass_on(Storage::fp32), AccuracyClass::fp32_logits},
    {"hopper",
     "fp32 logits as an H100 or H200 sums them, bit for bit; softplus formula, dlogits stored as the input.",
     hopper(), AccuracyClass::fp32_logits},
    {"float64", "float64 throughout.", Pipeline{}, AccuracyClass::float64},
};

}  // namespace

std::span<const RoundingModel> rounding_models() {
  return models;
}

const RoundingModel* find_rounding_model(std::string_view name) {
  const auto* found = std::find_if(std::begin(models), std::end(models),
                                   [&](const RoundingModel& m) { return m.name == name; });
  return found == std::end(models) ? nullptr : found;
}

}  // namespace fljsd
