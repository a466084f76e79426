// SPDX-License-Identifier: Apache-2.0
#include "reference/rounding/pipeline.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace fljsd {

const char* name(Storage storage) {
  switch (storage) {
    case Storage::float64: return "float64";
    case Storage::fp32: return "fp32";
    case Storage::bf16: return "bf16";
    case Storage::input: return "input";
  }
  return "?";
}

const char* name(LogitSum sum) {
  switch (sum) {
    case LogitSum::ordered: return "ordered";
    case LogitSum::hopper_tensor_core: return "hopper-tensor-core";
  }
  return "?";
}

const char* name(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::float64: return "float64";
    case Arithmetic::fp32: return "fp32";
  }
  return "?";
}

const char* name(Formula formula) {
  switch (formula) {
    case Formula::difference: return "difference";
    case Formula::log_mixture: return "log-mixture";
    case Formula::log_mixture_autograd: return "log-mixture-autograd";
    case Formula::softplus: return "softplus";
    case Formula::one_pass: return "one-pass";
  }
  return "?";
}

const char* name(Chunking chunking) {
  switch (chunking) {
    case Chunking::whole_batch: return "whole-batch";
    case Chunking::by_sizes: return "by-sizes";
  }
  return "?";
}

const char* name(Step step) {
  switch (step) {
    case Step::logits: return "logits";
    case Step::log_softmax: return "log-softmax";
    case Step::arithmetic: return "arithmetic";
    case Step::formula: return "formula";
    case Step::dlogits: return "dlogits";
    case Step::accumulation: return "accumulation";
    case Step::result: return "result";
  }
  return "?";
}

std::span<const Step> all_steps() {
  static constexpr Step steps[] = {Step::logits,  Step::formula,      Step::log_softmax, Step::arithmetic,
                                   Step::dlogits, Step::accumulation, Step::result};
  return steps;
}

DType dtype_of(Storage storage, DType input) {
  switch (storage) {
    case Storage::float64: return DType::f64;
    case Storage::fp32: return DType::f32;
    case Storage::bf16: return DType::bf16;
    case Storage::input: return input;
  }
  return DType::f64;
}

DType common_dtype(DType a, DType b) {
  if (a == b) return a;
  const DType wider = size_of(a) > size_of(b) ? a : b;
  return size_of(wider) == 2 ? DType::f32 : wider;  // bf16 with f16: neither holds the other's values
}

Index chunk_tokens(Index tokens, Index vocab, Index student_hidden) {
  const Index chunks = (vocab + student_hidden - 1) / student_hidden;
  const Index size = std::max<Index>(1, (tokens + chunks - 1) / chunks);
  return static_cast<Index>(std::bit_ceil(static_cast<std::uint64_t>(size)));
}

Pipeline with_step(Pipeline pipeline, const Pipeline& target, Step step) {
  switch (step) {
    case Step::logits:
      pipeline.logits = target.logits;
      pipeline.logit_sum = target.logit_sum;
      pipeline.scaled_logits = target.scaled_logits;
      break;
    case Step::log_softmax: pipeline.log_softmax = target.log_softmax; break;
    case Step::arithmetic: pipeline.arithmetic = target.arithmetic; break;
    case Step::formula:
      pipeline.formula = target.formula;
      pipeline.guarded = target.guarded;
      break;
    case Step::dlogits:
      pipeline.log_softmax_grad = target.log_softmax_grad;
      pipeline.scaled_logits_grad = target.scaled_logits_grad;
      pipeline.dlogits = target.dlogits;
      break;
    case Step::accumulation:
      pipeline.accumulation = target.accumulation;
      pipeline.chunking = target.chunking;
      break;
    case Step::result:
      pipeline.loss = target.loss;
      pipeline.gradients = target.gradients;
      break;
  }
  return pipeline;
}

std::vector<Pipeline> waterfall(const Pipeline& target) {
  std::vector<Pipeline> stages;
  Pipeline stage;
  for (Step step : all_steps()) stages.push_back(stage = with_step(stage, target, step));
  return stages;
}

namespace {

std::string stored(Storage storage) {
  return storage == Storage::input ? "the input's format" : name(storage);
}

// "fp32" when what was computed in fp32 is kept in fp32, else "fp32, stored in bf16".
std::string computed_and_stored(Storage storage) {
  if (storage == Storage::float64 || storage == Storage::fp32) return name(storage);
  return "fp32, stored in " + stored(storage);
}

}  // namespace

std::string describe(const Pipeline& pipeline, Step step) {
  switch (step) {
    case Step::logits:
      return (pipeline.logit_sum == LogitSum::ordered ? "logits summed in "
                                                      : "logits summed by Hopper's tensor cores in ") +
             computed_and_stored(pipeline.logits);
    case Step::formula: return std::string(name(pipeline.formula)) + " formula";
    case Step::log_softmax:
      if (pipeline.formula == Formula::one_pass) return "none: normalised by the one-pass sums";
      return "log-softmax in " + computed_and_stored(pipeline.log_softmax);
    case Step::arithmetic:
      return std::string(name(pipeline.formula)) + " formula in " +
             name(pipeline.formula == Formula::one_pass ? Arithmetic::fp32 : pipeline.arithmetic);
    case Step::dlogits: return "gradient of the logits stored in " + stored(pipeline.dlogits);
    case Step::accumulation:
      return std::string("gradients summed in ") + name(pipeline.accumulation) +
             (pipeline.chunking == Chunking::by_sizes ? ", over tokens by chunks kept in the input's format"
                                                      : "");
    case Step::result:
      return "loss in " + stored(pipeline.loss) + ", gradients in " + stored(pipeline.gradients);
  }
  return "?";
}

}  // namespace fljsd
