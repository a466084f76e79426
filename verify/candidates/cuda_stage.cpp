// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/cuda_stage.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "verify/candidates/cuda/stage_call.h"
#include "verify/candidates/cuda/stage_form.h"
#include "verify/candidates/function_candidate.h"

namespace fljsd {
namespace {

std::vector<fljsd_stage> loss_stages() {
  std::vector<fljsd_stage> stages;
  for (int i = 0; i < fljsd_stage_count(); ++i) {
    fljsd_stage stage{};
    stage.struct_size = sizeof stage;
    if (fljsd_stage_get(i, &stage) != FLJSD_OK) throw std::runtime_error(fljsd_last_error());
    if (stage.is_baseline == 0) stages.push_back(stage);
  }
  return stages;
}

// A copy of a matrix whose rows start at multiples of 16 bytes, NaN between them: what the fused stages' own
// kernel reads. (Other rows are served by another stage; layouts that a property asks for are left as they
// are.)
class AlignedRows {
 public:
  explicit AlignedRows(MatrixView& m) {
    if (m.dtype != DType::bf16 && m.dtype != DType::f16) return;
    const Index stride = (m.cols + 7) / 8 * 8;
    storage_.assign(static_cast<std::size_t>(m.rows * stride), 0x7fff);  // a NaN in either format
    const auto* from = static_cast<const std::byte*>(m.data);
    for (Index r = 0; r < m.rows; ++r) {
      std::memcpy(storage_.data() + r * stride, from + 2 * r * m.row_stride,
                  static_cast<std::size_t>(2 * m.cols));
    }
    m.data = storage_.data();
    m.row_stride = stride;
  }

 private:
  std::vector<std::uint16_t> storage_;
};

RowMajorMatrix<double> decode(const HostMatrix& m) {
  RowMajorMatrix<double> out(m.rows, m.cols);
  for (Index r = 0; r < m.rows; ++r) m.view().row(r, 0, m.cols, out.data() + r * m.cols);
  return out;
}

class CudaStage : public Candidate {
 public:
  explicit CudaStage(const fljsd_stage& stage) : stage_(stage) {}

  std::string name() const override { return std::string("cuda:") + stage_.name; }
  std::string description() const override { return stage_.description; }
  Declaration declaration() override {
    Declaration d;
    const bool rounds = stage_.logits_dtype == FLJSD_BF16;
    d.accuracy_class = rounds ? AccuracyClass::bf16_logits : AccuracyClass::fp32_logits;
    // Not deterministic in the sense of a declaration: a call repeats bit for bit (compute() checks that),
    // but cuBLASLt's algorithm depends on alignment and leading dimensions.
    d.deterministic = false;
    d.lacks = {Feature::f64};
    if (rounds) d.lacks = {Feature::f16, Feature::f32, Feature::f64};
    return d;
  }

  Outcome compute(const Case& c, const Request& request) override {
    Problem problem = c.problem();
    const bool wants_alignment = std::string_view(stage_.name).starts_with("fused");
    if (!wants_alignment) return run(problem, c.options, request, 0);
    const AlignedRows student_input(problem.student_input), student_weight(problem.student_weight);
    const AlignedRows teacher_input(problem.teacher_input), teacher_weight(problem.teacher_weight);
    return run(problem, c.options, request, 0);
  }
  bool takes_views() const override { return true; }
  // On the device tensors lie as they do on the host: the same strides, and as far past a multiple of 64
  // bytes as their format allows.
  Outcome compute_views(const Problem& problem, const Options& options, const Request& request) override {
    return run(problem, options, request, reinterpret_cast<std::uintptr_t>(problem.student_weight.data) % 64);
  }

 private:
  Outcome run(Problem problem, const Options& options, const Request& request, std::size_t misalignment) {
    if (has_enormous_logits(problem, options))
      return Unsupported{"unsupported: logits beyond 2^125 in magnitude"};
    const OneFormat student(problem.student_input, problem.student_weight);
    const OneFormat teacher(problem.teacher_input, problem.teacher_weight);
    StageRequest call_request;
    call_request.stage = stage_.name;
    call_request.gradients = request.grad;
    call_request.gradient_dtype = problem.student_input.dtype;
    call_request.gradient_padding = problem.student_input.row_stride - problem.student_input.cols;
    call_request.offset = [misalignment](DType dtype) {
      return misalignment / size_of(dtype) * size_of(dtype);
    };
    try {
      StageCall call(problem, options, call_request, &resources_);
      const StageOutput output = call.run(0xff);
      if (auto failure = violation(call)) return *failure;
      const StageOutput again = call.run(0x3f);
      if (auto failure = violation(call)) return *failure;
      if (!output.same_bits(again)) {
        return Failure{Failure::Kind::bad_result,
                       "the same call gave other bits when the workspace held other bytes before.",
                       {}};
      }
      Answer answer = to_answer(problem, options, request, output);
      if (request.grad) {
        // The losses that are judged are always those of the forward pass, which may be computed another way;
        // those of the pass with gradients are what the stages' own tests judge.
        const StageOutput losses = call.run(FLJSD_FORWARD, 0xff);
        if (auto failure = violation(call)) return *failure;
        if (options.reduction != Reduction::none) answer.result.loss = losses.loss;
        answer.result.token_loss.assign(losses.token_loss.begin(), losses.token_loss.end());
      }
      return answer;
    } catch (const StageUnsupported& refusal) {
      return Unsupported{std::string("unsupported: ") + refusal.what()};
    } catch (const std::runtime_error& error) {
      return Failure{Failure::Kind::error, error.what(), {}};
    }
  }

  // What a call did that it must not, if anything.
  static std::optional<Failure> violation(const StageCall& call) {
    if (call.violations().empty()) return std::nullopt;
    const auto kind = call.inputs_intact() ? Failure::Kind::bad_result : Failure::Kind::input_modified;
    return Failure{kind, call.violations().front(), {}};
  }

  static Answer to_answer(const Problem& problem, const Options& options, const Request& request,
                          const StageOutput& output) {
    Answer answer;
    answer.loss_format = DType::f32;
    Result& r = answer.result;
    if (options.reduction != Reduction::none) r.loss = output.loss;
    r.counted = count_tokens(problem, options);
    r.token_loss.assign(output.token_loss.begin(), output.token_loss.end());
    if (!request.grad) return answer;
    r.student_input_grad = decode(output.input_grad);
    r.student_weight_grad = decode(output.weight_grad);
    if (problem.student_bias) r.student_bias_grad.assign(output.bias_grad.begin(), output.bias_grad.end());
    return answer;
  }

  fljsd_stage stage_;
  CallResources resources_;
};

}  // namespace

std::vector<CandidateEntry> list_cuda_candidates() {
  std::vector<CandidateEntry> list;
  for (const fljsd_stage& stage : loss_stages())
    list.push_back({std::string("cuda:") + stage.name, stage.description});
  return list;
}

std::unique_ptr<Candidate> make_cuda_candidate(const std::string& name) {
  std::string names;
  for (const fljsd_stage& stage : loss_stages()) {
    names += (names.empty() ? "cuda:" : ", cuda:") + std::string(stage.name);
    if (name != stage.name) continue;
    if (fljsd_stage_available(stage.name, -1) != FLJSD_OK)
      throw std::invalid_argument("candidate is 'cuda:" + name +
                                  "', but it cannot run here: " + fljsd_last_error());
    return std::make_unique<CudaStage>(stage);
  }
  throw std::invalid_argument("candidate is 'cuda:" + name + "', but the CUDA stages are " + names + ".");
}

}  // namespace fljsd
