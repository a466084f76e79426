// SPDX-License-Identifier: Apache-2.0
// Stages `hopper-gemm` and `hopper-log-sum-exp`: two steps from the matrix products to the fused stage. Both
// are baselines: they show what the products cost, and no loss comes out.
//
//   hopper-gemm:         X and Y, rounded to the inputs' format, by our own kernel in the place of cuBLASLt.
//                        The workspace begins with the student's logits [tokens, ld], ld = valid_vocab
//                        rounded up to a multiple of 64; the teacher's follow at the next multiple of 256
//                        bytes. token_loss is NaN.
//   hopper-log-sum-exp:  the same products, no logits in memory: a log-sum-exp of every row, good to 2e-6
//                        (and the rounding of the result; gemm_log_sum_exp.cu). token_loss[t] is the
//                        student's minus the teacher's, of the plain products: biases, temperature, labels
//                        play no part.
//
// loss is NaN. T tokens, V vocab, H hidden. FLOPs 4·T·V·H; bytes 4·V·H for the weights and, hopper-gemm,
// 4·T·V for the logits. hopper-log-sum-exp needs V/32 bytes a token and model in between.
//
// They run on compute capability 9.0, with both models in bf16 or both in fp16 and rows that start at
// multiples of 16 bytes, and refuse anything else. With gradients the call is `gemm`'s.
#include <limits>

#include "cuda/batch.h"
#include "cuda/hopper/gemm.h"
#include "cuda/hopper/tensor_map.h"
#include "cuda/products.h"
#include "cuda/stage.h"

namespace fljsd::cuda {
namespace {

using hopper::Epilogue;

class HopperGemm final : public Stage {
 public:
  HopperGemm(const Settings& settings, Epilogue epilogue) : settings_(settings), epilogue_(epilogue) {
    const Settings& s = settings_;
    if (s.tokens == 0) return;
    refuse_what_does_not_run();
    arguments_.order = hopper::make_product_order(static_cast<int>(s.tokens), static_cast<int>(s.valid_vocab),
                                                  hopper::most_product_clusters(epilogue, s.student.dtype));
    arguments_.vocab = static_cast<int>(s.valid_vocab);
    arguments_.k_blocks[0] = static_cast<int>(ceil_div(s.student.hidden, 64));
    arguments_.k_blocks[1] = static_cast<int>(ceil_div(s.teacher.hidden, 64));
    if (s.any_grad()) with_gradients_ = make_gemm_stage(s);
  }

  Index workspace_bytes(fljsd_pass pass) const override {
    if (settings_.tokens == 0) return 0;
    if (pass == FLJSD_FORWARD_BACKWARD) return with_gradients_->workspace_bytes(pass);
    Workspace measure(nullptr);
    lay_out(measure);
    return measure.used();
  }

  void run(fljsd_pass pass, const Call& call) const override {
    if (pass == FLJSD_FORWARD_BACKWARD) return with_gradients_->run(pass, call);
    const Settings& s = settings_;
    const fljsd_tensors& t = call.tensors;
    Workspace workspace(call.workspace);
    const Arrays a = lay_out(workspace);
    hopper::ProductArguments arguments = arguments_;
    arguments.partial_sums = a.partial_sums;
    hopper::launch_products(call.stream, epilogue_, s.student.dtype, make_maps(t, a), arguments);
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    if (t.token_loss != nullptr) {
      if (epilogue_ == Epilogue::log_sum_exp) {
        hopper::launch_merge_log_sum_exps(call.stream, arguments, static_cast<int>(s.tokens), t.token_loss);
      } else {
        launch_fill(call.stream, t.token_loss, s.tokens, nan);
      }
    }
    if (t.loss != nullptr && s.reduction != FLJSD_NONE) launch_fill(call.stream, t.loss, 1, nan);
  }

  void tune(fljsd_pass pass, const Call& call) override {
    if (pass == FLJSD_FORWARD_BACKWARD) return with_gradients_->tune(pass, call);
    run(pass, call);
  }

  std::string describe() const override {
    if (settings_.tokens == 0) return "";
    const hopper::ProductOrder& order = arguments_.order;
    std::string text = "forward: tiles of " + std::to_string(hopper::block_rows) + " tokens x " +
                       std::to_string(hopper::product_columns) + " vocabulary entries by " +
                       std::to_string(order.clusters) + " clusters, " + std::to_string(order.group_blocks) +
                       " blocks of tokens a group\n";
    if (with_gradients_) text += "forward and backward: as stage gemm\n" + with_gradients_->describe();
    return text;
  }

 private:
  struct Arrays {
    void* logits[2] = {};                        // hopper-gemm, first
    hopper::PartialSum* partial_sums = nullptr;  // hopper-log-sum-exp
  };

  const char* name() const { return epilogue_ == Epilogue::logits ? "hopper-gemm" : "hopper-log-sum-exp"; }
  Index ld() const { return logits_ld(settings_.valid_vocab); }

  void refuse_what_does_not_run() const {
    const Settings& s = settings_;
    if (const std::string obstacle = hopper::obstacle_to_maps(s); !obstacle.empty())
      fail(FLJSD_UNSUPPORTED, "Stage ", name(), " cannot run: ", obstacle, ".");
    constexpr Index most = std::numeric_limits<int>::max() / 2;
    const Index tiles =
        ceil_div(s.tokens, hopper::block_rows) * ceil_div(s.valid_vocab, hopper::product_columns);
    if (tiles > most)
      fail(FLJSD_UNSUPPORTED, "There are ", tiles, " tiles, but stage ", name(), " has up to ", most, ".");
    if (hopper::most_product_clusters(epilogue_, s.student.dtype) < 1) {
      fail(FLJSD_UNSUPPORTED, "Stage ", name(),
           " needs compute capability 9.0 and a library built with sm_90a", " code, but device ",
           s.device.ordinal, " (", s.device.name, ") has ", s.device.capability / 10, ".",
           s.device.capability % 10, ".");
    }
  }

  Arrays lay_out(Workspace& workspace) const {
    const Settings& s = settings_;
    Arrays a;
    if (epilogue_ == Epilogue::logits) {
      for (void*& logits : a.logits) logits = workspace.take(s.student.dtype, s.tokens * ld());
    } else {
      a.partial_sums = workspace.take<hopper::PartialSum>(2 * arguments_.partial_sums_of_product());
    }
    return a;
  }

  hopper::ProductMaps make_maps(const fljsd_tensors& t, const Arrays& a) const {
    const Settings& s = settings_;
    const Model* const models[] = {&s.student, &s.teacher};
    const void* const inputs[] = {t.student_input, t.teacher_input};
    const void* const weights[] = {t.student_weight, t.teacher_weight};
    if (!hopper::can_map(t)) {
      fail(FLJSD_UNSUPPORTED, "A tensor does not start at a multiple of 16 bytes, which stage ", name(),
           " needs.");
    }
    hopper::ProductMaps maps{};
    for (int i = 0; i < 2; ++i) {
      const Model& m = *models[i];
      maps.input[i] =
          hopper::make_tensor_map(inputs[i], m.dtype, s.tokens, m.hidden, m.input_ld, hopper::cta_rows);
      maps.weight[i] = hopper::make_tensor_map(weights[i], m.dtype, s.valid_vocab, m.hidden, m.weight_ld,
                                               hopper::product_columns / hopper::cluster_size);
      if (epilogue_ == Epilogue::logits) {
        maps.logits[i] = hopper::make_tensor_map(a.logits[i], m.dtype, s.tokens, s.valid_vocab, ld(),
                                                 hopper::logits_box_rows);
      }
    }
    return maps;
  }

  Settings settings_;
  Epilogue epilogue_;
  hopper::ProductArguments arguments_;  // without what a call adds
  std::unique_ptr<Stage> with_gradients_;
};

}  // namespace

std::unique_ptr<Stage> make_hopper_gemm(const Settings& settings) {
  return std::make_unique<HopperGemm>(settings, Epilogue::logits);
}
std::unique_ptr<Stage> make_hopper_log_sum_exp(const Settings& settings) {
  return std::make_unique<HopperGemm>(settings, Epilogue::log_sum_exp);
}

}  // namespace fljsd::cuda
