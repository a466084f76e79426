// SPDX-License-Identifier: Apache-2.0
// The second sweep's certificate. The steps of chunked-vocab with gradients, compiled from its sources, so
// that the constants of some tokens can be made wrong between the two sweeps.
#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "cuda/backward_sweep.h"
#include "cuda/one_pass_weights.h"
#include "cuda/row_divergence.cuh"
#include "verify/tests/gpu/gpu_case.h"

namespace fljsd::testing {
namespace {

namespace cu = fljsd::cuda;

template <class T>
std::vector<T> read(const void* device, Index count) {
  std::vector<T> host(static_cast<std::size_t>(count));
  check_cuda(cudaMemcpy(host.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost));
  return host;
}

cu::Model model(const HostMatrix& input, const HostMatrix& weight, const std::optional<HostMatrix>& bias) {
  return {.hidden = input.cols,
          .input_ld = input.ld,
          .weight_ld = weight.ld,
          .dtype = static_cast<fljsd_dtype>(dtype_code(input.dtype)),
          .bias_dtype = bias ? static_cast<fljsd_dtype>(dtype_code(bias->dtype)) : FLJSD_ABSENT};
}

cu::Settings settings_of(const HostCase& host) {
  const Recipe& r = host.recipe;
  cu::Settings s;
  s.tokens = r.tokens, s.vocab = s.valid_vocab = r.vocab;
  s.student = model(host.student_input, host.student_weight, host.student_bias);
  s.teacher = model(host.teacher_input, host.teacher_weight, host.teacher_bias);
  s.input_grad_ld = s.weight_grad_ld = s.student.hidden;
  s.gradient_dtype = static_cast<fljsd_dtype>(dtype_code(r.gradient_dtype.value_or(r.student_dtype)));
  s.has_labels = host.labels.has_value();
  s.ignore_index = r.options.ignore_index;
  s.beta = r.options.beta, s.temperature = r.options.temperature;
  s.input_grad = s.weight_grad = s.bias_grad = true;
  check_cuda(cudaGetDevice(&s.device.ordinal));
  check_cuda(
      cudaDeviceGetAttribute(&s.device.multiprocessors, cudaDevAttrMultiProcessorCount, s.device.ordinal));
  return s;
}

// A pass with gradients. `corrupt` is given the row constants between the sweeps.
class Pass {
 public:
  Pass(const HostCase& host, Index tile)
      : host_(host),
        settings_(settings_of(host)),
        tiles_{settings_.valid_vocab, std::min(tile, settings_.valid_vocab)},
        sweep_(settings_, std::make_shared<cu::LtHandle>(), tiles_) {
    const auto upload = [&](const std::vector<std::byte>& bytes) -> const void* {
      return inputs_.emplace_back(bytes).get();
    };
    inputs_.reserve(8);
    fljsd_tensors& t = call_.tensors;
    t.student_input = upload(host.student_input.bytes), t.student_weight = upload(host.student_weight.bytes);
    t.teacher_input = upload(host.teacher_input.bytes), t.teacher_weight = upload(host.teacher_weight.bytes);
    if (host.student_bias) t.student_bias = upload(host.student_bias->bytes);
    if (host.teacher_bias) t.teacher_bias = upload(host.teacher_bias->bytes);
    if (host.labels) {
      std::vector<std::byte> bytes(host.labels->size() * sizeof(std::int64_t));
      std::memcpy(bytes.data(), host.labels->data(), bytes.size());
      t.labels = static_cast<const std::int64_t*>(upload(bytes));
    }
    const Recipe& r = host.recipe;
    const std::size_t size = fljsd::size_of(gradient_dtype());
    const Index hidden = settings_.student.hidden;
    loss_ = DeviceBuffer(sizeof(float));
    token_loss_ = DeviceBuffer(static_cast<std::size_t>(r.tokens) * sizeof(float));
    input_grad_ = DeviceBuffer(static_cast<std::size_t>(r.tokens * hidden) * size);
    weight_grad_ = DeviceBuffer(static_cast<std::size_t>(r.vocab * hidden) * size);
    bias_grad_ = DeviceBuffer(static_cast<std::size_t>(r.vocab) * sizeof(float));
    t.loss = loss_.as<float>(), t.token_loss = token_loss_.as<float>();
    t.student_input_grad = input_grad_.get(), t.student_weight_grad = weight_grad_.get();
    t.student_bias_grad = bias_grad_.as<float>();
    cu::Workspace measure(nullptr);
    lay_out(measure, nullptr);
    workspace_ = DeviceBuffer(static_cast<std::size_t>(measure.used()));
    call_.workspace = workspace_.get();
  }

  template <class Corrupt>
  StageResult run(const Corrupt& corrupt) {
    const cu::Settings& s = settings_;
    const cu::Divergence kind = cu::divergence_kind(s.beta);
    const cu::Mixture mixture = cu::make_mixture(s.beta, s.temperature);
    constexpr cu::Basis basis = cu::Basis::twenty_two;
    const cu::OnePassWeights weights = cu::make_one_pass_weights(s.beta, basis);
    cu::Workspace workspace(call_.workspace);
    const Arrays a = lay_out(workspace, &call_);
    for (Index i = 0; i < tiles_.count(); ++i) {
      cu::launch_accumulate(call_.stream, kind, basis, mixture, weights.phase_step,
                            sweep_.run_logits(call_, a.batch, a.sweep, i), {a.state, 1}, i == 0);
    }
    cu::launch_finish(call_.stream, kind, basis, mixture, weights, {a.state, 1}, s.tokens,
                      cu::ignored_tokens(s, call_), a.batch.token_loss, a.sweep.constants);
    auto constants = read<cu::RowConstants>(a.sweep.constants, s.tokens);
    auto losses = read<float>(a.batch.token_loss, s.tokens);
    corrupt(constants, losses);
    check_cuda(cudaMemcpy(a.sweep.constants, constants.data(), constants.size() * sizeof(cu::RowConstants),
                          cudaMemcpyHostToDevice));
    check_cuda(
        cudaMemcpy(a.batch.token_loss, losses.data(), losses.size() * sizeof(float), cudaMemcpyHostToDevice));
    sweep_.run(call_, a.batch, a.sweep, std::nullopt, true);
    cu::finish_losses(s, call_, a.batch.token_loss);
    check_cuda(cudaDeviceSynchronize());
    missed = read<std::int32_t>(a.sweep.certificate.missed,
                                read<unsigned>(a.sweep.certificate.missed_count, 1)[0]);
    StageResult result;
    result.loss = read<float>(loss_.get(), 1)[0];
    result.token_loss = read<float>(token_loss_.get(), s.tokens);
    const Index hidden = s.student.hidden;
    result.input_grad = {gradient_dtype(), s.tokens, hidden, hidden, input_grad_.to_host()};
    result.weight_grad = {gradient_dtype(), s.vocab, hidden, hidden, weight_grad_.to_host()};
    result.bias_grad = read<float>(bias_grad_.get(), s.vocab);
    return result;
  }

  std::vector<std::int32_t> missed;  // of the last run

 private:
  struct Arrays {
    cu::BatchArrays batch;
    float* state = nullptr;
    cu::BackwardSweep::Arrays sweep;
  };
  Arrays lay_out(cu::Workspace& workspace, const cu::Call* call) const {
    const cu::Settings& s = settings_;
    Arrays a;
    a.batch = cu::begin_batch(s, FLJSD_FORWARD_BACKWARD, workspace, call);
    a.state = workspace.take<float>(s.tokens *
                                    cu::state_floats(cu::divergence_kind(s.beta), cu::Basis::twenty_two));
    a.sweep = cu::BackwardSweep::lay_out(s, tiles_, workspace);
    return a;
  }
  DType gradient_dtype() const { return host_.recipe.gradient_dtype.value_or(host_.recipe.student_dtype); }

  const HostCase& host_;
  cu::Settings settings_;
  cu::Pieces tiles_;
  cu::BackwardSweep sweep_;
  cu::Call call_{};
  std::vector<DeviceBuffer> inputs_;
  DeviceBuffer loss_, token_loss_, input_grad_, weight_grad_, bias_grad_, workspace_;
};

constexpr auto nothing = [](std::vector<cu::RowConstants>&, std::vector<float>&) {};

Recipe small_recipe() {
  Recipe r;
  r.tokens = 45, r.vocab = 500, r.student_hidden = 20, r.teacher_hidden = 33;
  r.student_bias = r.teacher_bias = DType::f32;
  return r;
}

// A certificate that convicts right statistics: every pass would take milliseconds more a token.
TEST(Certificate, ConvictsNothingThatIsRight) {
  for (const Recipe::Values values :
       {Recipe::Values::grid, Recipe::Values::normal, Recipe::Values::uniform, Recipe::Values::near}) {
    for (const double beta : {0.001, 0.1, 0.5, 0.9, 0.99}) {
      for (const double spread : {0.01, 1.0, 8.0, 40.0}) {
        Recipe r = small_recipe();
        r.values = values, r.spread = spread, r.options.beta = beta, r.vocab = 3001;
        r.gap = 1e-3 * spread;
        r.student_dtype = r.teacher_dtype = spread > 1 ? DType::bf16 : DType::f16;
        r.ignored = spread > 10 ? 0.3 : 0;
        const HostCase host = make_case(r);
        Pass pass(host, 1000);
        pass.run(nothing);
        EXPECT_EQ(pass.missed.size(), 0u) << describe(r) << ", spread " << spread;
      }
    }
  }
}

// Wrong constants that are not noticed, or repaired in the gradient of the inputs, the weight or the bias but
// not in the others, for other tokens, or not in the loss. More than 32 tokens, which a repair takes at a
// time.
TEST(Certificate, WrongConstantsAreRepaired) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const double beta : {0.1, 0.5, 0.8}) {
      for (const Index few : {Index{3}, Index{1}}) {
        Recipe r = small_recipe();
        r.student_dtype = r.teacher_dtype = dtype;
        r.gradient_dtype = DType::f32;  // a repair adds to the weight gradient: no second rounding here
        r.options.beta = beta, r.options.temperature = 2;
        r.ignored = few == 3 ? 0.2 : 0;
        const HostCase host = make_case(r);
        Pass pass(host, 200);
        std::vector<std::int32_t> wrong;
        const StageResult result =
            pass.run([&](std::vector<cu::RowConstants>& constants, std::vector<float>& losses) {
              for (std::size_t t = 0; t < constants.size(); t += static_cast<std::size_t>(few)) {
                if (constants[t].uses_kappa < 0) continue;
                constants[t].constant += t % 2 == 0 ? 1e-3f : -1e-3f;
                losses[t] = 9;
                wrong.push_back(static_cast<std::int32_t>(t));
              }
            });
        EXPECT_EQ(pass.missed, wrong) << describe(r);
        expect_close(result, host, "chunked-vocab");
      }
    }
  }
}

// A gradient that was rounded before it was repaired is off by one more rounding, no more: constants that are
// wrong by little change little else.
TEST(Certificate, RoundedWeightGradientsAreRepaired) {
  Recipe r = small_recipe();
  const HostCase host = make_case(r);
  Pass pass(host, 200);
  const StageResult right = pass.run(nothing);
  EXPECT_EQ(pass.missed.size(), 0u);
  const StageResult repaired = pass.run([](std::vector<cu::RowConstants>& constants, std::vector<float>&) {
    for (cu::RowConstants& c : constants) c.constant += 1e-3f;
  });
  EXPECT_EQ(pass.missed.size(), static_cast<std::size_t>(r.tokens));
  double difference = 0, norm = 0;
  for (Index v = 0; v < r.vocab; ++v) {
    for (Index h = 0; h < r.student_hidden; ++h) {
      const double want = right.weight_grad.at(v, h), got = repaired.weight_grad.at(v, h);
      difference += (got - want) * (got - want);
      norm += want * want;
    }
  }
  // Three roundings on one side (dlogits, gradient, repair's second half for 45 tokens: gradient twice more)
  // and two on the other, 2^-8 of the gradient each at most; those of dlogits add up over tokens of either
  // sign.
  EXPECT_LE(std::sqrt(difference), 6 * 0x1p-8 * std::sqrt(norm));
}

}  // namespace
}  // namespace fljsd::testing
