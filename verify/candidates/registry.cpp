// SPDX-License-Identifier: Apache-2.0
// The registry of candidates. To add one, add it to makers().
#include <chrono>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <vector>

#include "reference/rounding.h"
#include "verify/candidates/cuda_stage.h"
#include "verify/candidates/external.h"
#include "verify/candidates/function_candidate.h"
#include "verify/candidates/vocab_parallel.h"
#include "verify/zoo/fault.h"

namespace fljsd {
namespace {

struct Maker {
  CandidateEntry entry;
  std::function<std::unique_ptr<Candidate>()> make;
};

Maker reference_maker() {
  const CandidateEntry entry{"reference", "the float64 tier of the reference itself"};
  return {
      entry, [entry] {
        return std::make_unique<ViewCandidate>(
            entry.name, entry.description, Declaration{AccuracyClass::float64, true, {}},
            [](const Problem& problem, const Options& options, const Request& request) -> Outcome {
              return Answer{linear_jsd<double>(problem, options, wanted_for(problem, request)), DType::f64};
            });
      }};
}

// What the model stores its loss in.
DType loss_dtype(const Problem& problem, const Pipeline& pipeline) {
  return dtype_of(pipeline.loss, common_dtype(problem.student_input.dtype, problem.student_weight.dtype));
}

Maker rounding_maker(const RoundingModel& model) {
  const CandidateEntry entry{model.name, model.description};
  return {entry, [entry, &model] {
            return std::make_unique<ViewCandidate>(
                entry.name, entry.description, Declaration{model.accuracy_class, true, {}},
                [&model](const Problem& problem, const Options& options, const Request& request) -> Outcome {
                  return Answer{run_pipeline(problem, options, wanted_for(problem, request), model.pipeline),
                                loss_dtype(problem, model.pipeline)};
                });
          }};
}

// The specification's formulas, nothing else changed, in the arithmetic of the class that kernels declare
// most.
constexpr RoundingModel reference_in_fp32{"reference-fp32",
                                          "the reference's formulas in fp32 throughout",
                                          {.logits = Storage::fp32,
                                           .scaled_logits = Storage::fp32,
                                           .log_softmax = Storage::fp32,
                                           .arithmetic = Arithmetic::fp32,
                                           .formula = Formula::difference,
                                           .log_softmax_grad = Storage::fp32,
                                           .scaled_logits_grad = Storage::fp32,
                                           .dlogits = Storage::fp32,
                                           .accumulation = Arithmetic::fp32,
                                           .loss = Storage::fp32,
                                           .gradients = Storage::fp32},
                                          AccuracyClass::fp32_logits};

const std::vector<Maker>& makers() {
  static const std::vector<Maker> all = [] {
    std::vector<Maker> entries{reference_maker(), rounding_maker(reference_in_fp32)};
    for (const RoundingModel& model : rounding_models()) entries.push_back(rounding_maker(model));
    return entries;
  }();
  return all;
}

// On one GPU, and on several.
std::vector<CandidateEntry> cuda_candidates() {
  std::vector<CandidateEntry> list = list_cuda_candidates();
  if (!list.empty()) list.push_back(vocab_parallel_entry());
  return list;
}

}  // namespace

std::vector<CandidateEntry> list_candidates() {
  std::vector<CandidateEntry> list;
  for (const Maker& maker : makers()) list.push_back(maker.entry);
  for (const CandidateEntry& stage : cuda_candidates()) list.push_back(stage);
  list.push_back(
      {"zoo:NAME", "one of " + std::to_string(zoo::faults().size()) + " with a known fault: docs/zoo.md"});
  list.push_back({"exec:COMMAND", "any program that speaks the protocol of docs/verify_your_kernel.md"});
  return list;
}

std::unique_ptr<Candidate> make_candidate(const std::string& specification, double timeout) {
  constexpr std::string_view exec = "exec:";
  if (specification.starts_with(exec)) {
    const std::string command = specification.substr(exec.size());
    if (command.empty())
      throw std::invalid_argument("candidate is 'exec:', but a command must follow the colon.");
    ExternalLimits limits;
    if (timeout > 0) limits.answer = std::chrono::milliseconds(std::llround(timeout * 1000));
    return std::make_unique<ExternalCandidate>(command, limits);
  }
  if (specification == "cuda:vocab-parallel") return make_vocab_parallel_candidate();
  constexpr std::string_view cuda = "cuda:";
  if (specification.starts_with(cuda)) return make_cuda_candidate(specification.substr(cuda.size()));
  constexpr std::string_view fault = "zoo:";
  if (specification.starts_with(fault)) return make(zoo::find_fault(specification.substr(fault.size())));
  std::string names;
  for (const Maker& maker : makers()) {
    if (maker.entry.name == specification) return maker.make();
    names += maker.entry.name + ", ";
  }
  for (const CandidateEntry& stage : cuda_candidates()) names += stage.name + ", ";
  throw std::invalid_argument("candidate is '" + specification + "', but it must be one of " + names +
                              "zoo:NAME (docs/zoo.md) or exec:COMMAND.");
}

const char* name(Failure::Kind kind) {
  switch (kind) {
    case Failure::Kind::error: return "error";
    case Failure::Kind::crash: return "crash";
    case Failure::Kind::time_out: return "time-out";
    case Failure::Kind::garbage: return "garbage on stdout";
    case Failure::Kind::bad_result: return "bad result";
    case Failure::Kind::input_modified: return "input modified";
    case Failure::Kind::hang_at_exit: return "hang at exit";
  }
  return "?";
}

}  // namespace fljsd
