// SPDX-License-Identifier: Apache-2.0
// Stage `gemm`, the 100 % line. Promise: nothing but the matrix products that any implementation needs, by
// cuBLASLt, each writing a result in the inputs' format.
//
//   forward:   X = student_input · student_weightᵀ, Y = teacher_input · teacher_weightᵀ
//   backward:  X · student_weight and Xᵀ · student_input, with X in the place of dlogits
//
// T tokens, V vocab, H hidden. FLOPs 4·T·V·H forward and as many backward. Bytes (2-byte formats): 4·V·H for
// the weights and 4·T·V for the logits forward. There is no loss: loss and token_loss are NaN, and the
// gradients mean nothing.
#include <limits>
#include <optional>

#include "cuda/batch.h"
#include "cuda/products.h"
#include "cuda/stage.h"

namespace fljsd::cuda {
namespace {

class GemmStage final : public Stage {
 public:
  explicit GemmStage(const Settings& settings) : settings_(settings), lt_(std::make_shared<LtHandle>()) {
    const Settings& s = settings_;
    if (s.tokens == 0) return;
    const auto logits = [&](const char* what, const Model& model) {
      return Gemm(lt_, logits_spec(what, model, s.tokens, s.valid_vocab, model.dtype));
    };
    student_logits_.emplace(logits("student logits", s.student));
    teacher_logits_.emplace(logits("teacher logits", s.teacher));
    Settings all = s;  // no token is left out
    all.has_labels = false;
    if (s.input_grad) input_grad_.emplace(lt_, input_grad_spec(all, s.tokens, s.valid_vocab, false));
    if (s.weight_grad) weight_grad_.emplace(lt_, weight_grad_spec(all, s.tokens, s.valid_vocab, false));
  }

  Index workspace_bytes(fljsd_pass) const override {
    Workspace measure(nullptr);
    lay_out(measure);
    return measure.used();
  }

  void run(fljsd_pass pass, const Call& call) const override {
    const fljsd_tensors& t = call.tensors;
    each_product(*this, pass, call,
                 [&](const Gemm& gemm, const Gemm::Operands& operands) { gemm.run(call.stream, operands); });
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    if (t.token_loss != nullptr) launch_fill(call.stream, t.token_loss, settings_.tokens, nan);
    if (t.loss != nullptr && settings_.reduction != FLJSD_NONE) launch_fill(call.stream, t.loss, 1, nan);
    if (pass == FLJSD_FORWARD) return;
    if (settings_.weight_grad) clear_weight_grad_tail(settings_, call);
    if (settings_.bias_grad) launch_fill(call.stream, t.student_bias_grad, settings_.vocab, nan);
  }

  void tune(fljsd_pass pass, const Call& call) override {
    run(pass, call);
    each_product(*this, pass, call,
                 [&](Gemm& gemm, const Gemm::Operands& operands) { gemm.tune(call.stream, operands); });
  }

  std::string describe() const override {
    std::string text;
    for (const std::optional<Gemm>* gemm :
         {&student_logits_, &teacher_logits_, &input_grad_, &weight_grad_}) {
      if (*gemm) text += "  " + (*gemm)->describe() + "\n";
    }
    return text;
  }

 private:
  struct Arrays {
    void* gemm_workspace;
    void* student_logits;
    void* teacher_logits;
  };

  Arrays lay_out(Workspace& workspace) const {
    const Index logits = settings_.tokens * logits_ld(settings_.valid_vocab);
    Arrays a;
    a.gemm_workspace = workspace.take<std::byte>(Gemm::workspace_size);
    a.student_logits = workspace.take(settings_.student.dtype, logits);
    a.teacher_logits = workspace.take(settings_.teacher.dtype, logits);
    return a;
  }

  // use(product, operands) for the products of `stage`, which is const where they are only run.
  template <class ThisStage, class Use>
  static void each_product(ThisStage& stage, fljsd_pass pass, const Call& call, const Use& use) {
    static constexpr float one = 1, zero = 0;
    const fljsd_tensors& t = call.tensors;
    Workspace workspace(call.workspace);
    const Arrays a = stage.lay_out(workspace);
    const auto operands = [&](const void* left, const void* right, void* out) {
      return Gemm::Operands{left, right, out, &one, &zero, a.gemm_workspace};
    };
    use(*stage.student_logits_, operands(t.student_input, t.student_weight, a.student_logits));
    use(*stage.teacher_logits_, operands(t.teacher_input, t.teacher_weight, a.teacher_logits));
    if (pass == FLJSD_FORWARD) return;
    if (stage.input_grad_)
      use(*stage.input_grad_, operands(a.student_logits, t.student_weight, t.student_input_grad));
    if (stage.weight_grad_)
      use(*stage.weight_grad_, operands(a.student_logits, t.student_input, t.student_weight_grad));
  }

  Settings settings_;
  std::shared_ptr<const LtHandle> lt_;
  std::optional<Gemm> student_logits_, teacher_logits_, input_grad_, weight_grad_;
};

}  // namespace

std::unique_ptr<Stage> make_gemm_stage(const Settings& settings) {
  return std::make_unique<GemmStage>(settings);
}

}  // namespace fljsd::cuda
