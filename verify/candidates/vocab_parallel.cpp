// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/vocab_parallel.h"

#include <stdexcept>

#include "verify/candidates/cuda/stage_call.h"
#include "verify/candidates/cuda/stage_form.h"
#include "verify/candidates/cuda/team_call.h"

namespace fljsd {
namespace {

class VocabParallel : public Candidate {
 public:
  explicit VocabParallel(int ranks) : team_({ranks, 1}) {}

  std::string name() const override { return vocab_parallel_entry().name; }
  std::string description() const override { return vocab_parallel_entry().description; }
  Declaration declaration() override {
    Declaration d;
    d.accuracy_class = AccuracyClass::fp32_logits;
    d.deterministic = false;  // as for the stages: cuBLASLt's algorithm depends on alignment
    d.lacks = {Feature::f64};
    return d;
  }
  bool takes_views() const override { return true; }
  Outcome compute(const Case& c, const Request& request) override {
    return compute_views(c.problem(), c.options, request);
  }

  Outcome compute_views(const Problem& given, const Options& options, const Request& request) override {
    if (has_enormous_logits(given, options))
      return Unsupported{"unsupported: logits beyond 2^125 in magnitude"};
    const int ranks = team_.grid().ranks();
    Problem problem = given;
    const OneFormat student(problem.student_input, problem.student_weight);
    const OneFormat teacher(problem.teacher_input, problem.teacher_weight);
    TeamRequest call;
    call.gradients = request.grad;
    call.gradient_dtype = problem.student_input.dtype;
    call.shards = ragged_shards(problem.vocab(), ranks, static_cast<std::uint64_t>(problem.vocab()));
    call.parts = {{0, problem.tokens()}};
    try {
      const TeamOutput output = call_team(team_, problem, options, call, true);
      if (!output.violations.empty())
        return Failure{Failure::Kind::bad_result, output.violations.front(), {}};
      Answer answer = to_answer(problem, options, request, output);
      if (request.grad) {  // losses that are judged are those of the forward pass, as for the stages
        call.gradients = false;
        const TeamOutput forward = call_team(team_, problem, options, call);
        if (!forward.violations.empty())
          return Failure{Failure::Kind::bad_result, forward.violations.front(), {}};
        if (options.reduction != Reduction::none) answer.result.loss = static_cast<double>(forward.loss);
        answer.result.token_loss.assign(forward.token_loss.begin(), forward.token_loss.end());
      }
      return answer;
    } catch (const StageUnsupported& refusal) {
      return Unsupported{std::string("unsupported: ") + refusal.what()};
    } catch (const std::runtime_error& error) {
      return Failure{Failure::Kind::error, error.what(), {}};
    }
  }

 private:
  static Answer to_answer(const Problem& problem, const Options& options, const Request& request,
                          const TeamOutput& output) {
    Answer answer;
    answer.loss_format = DType::f32;
    Result& r = answer.result;
    if (options.reduction != Reduction::none) r.loss = static_cast<double>(output.loss);
    r.counted = count_tokens(problem, options);
    r.token_loss.assign(output.token_loss.begin(), output.token_loss.end());
    if (!request.grad) return answer;
    r.student_input_grad = output.input_grad;
    r.student_weight_grad = output.weight_grad;
    if (problem.student_bias) r.student_bias_grad = output.bias_grad;
    return answer;
  }

  RankTeam team_;
};

}  // namespace

CandidateEntry vocab_parallel_entry() {
  return {"cuda:vocab-parallel",
          "the vocabulary cut over all GPUs of this machine, exchanged over NCCL; chunked-vocab on each"};
}

std::unique_ptr<Candidate> make_vocab_parallel_candidate() {
  const std::string refused = "candidate is 'cuda:vocab-parallel', but it cannot run here: ";
  const int gpus = count_gpus();
  try {
    const int ranks = ranks_that_share() > 0 && gpus > 0 ? ranks_that_share() : gpus;
    if (ranks < 2) {
      throw std::invalid_argument(refused + "it takes two GPUs or more, and there " +
                                  (gpus == 1 ? "is 1." : "is none."));
    }
    return std::make_unique<VocabParallel>(ranks);
  } catch (const std::runtime_error& error) {
    throw std::invalid_argument(refused + error.what());
  }
}

}  // namespace fljsd
