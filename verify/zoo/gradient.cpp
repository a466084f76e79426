// SPDX-License-Identifier: Apache-2.0
// Faults of the gradients: of the formula, of its factors, of the products with it.
#include <algorithm>
#include <cmath>

#include "verify/zoo/bf16_logits.h"
#include "verify/zoo/make_fault.h"

namespace fljsd::zoo {
namespace {

constexpr Index chunk = 2;
constexpr Index entries_of_a_tile = 64;

struct ZeroGradient : Twin<double> {
  static constexpr About about{"zero-gradient", "Gradients are 0: small enough to pass a loose tolerance."};
  double gradient_scale() const override { return 0; }
};

struct GradientWithoutTemperature : Twin<double> {
  static constexpr About about{"gradient-without-temperature", "The gradient lacks the factor 1/T."};
  double gradient_scale() const override { return 1 / divisor(); }
};

struct GradientWithoutDivisor : Twin<double> {
  static constexpr About about{"gradient-without-divisor", "The gradient of the mean lacks 1/count."};
  double gradient_scale() const override { return 1 / temperature(Model::student); }
};

struct GradientDivisorCountsIgnored : Twin<double> {
  static constexpr About about{
      "gradient-divisor-counts-ignored",
      "The gradient of the mean is divided by all tokens, the mean by those that count."};
  double gradient_scale() const override {
    const bool mean = options.reduction == Reduction::batchmean;
    return 1 / ((mean ? static_cast<double>(problem.tokens()) : 1) * temperature(Model::student));
  }
};

struct StudentMinusMixture : Twin<double> {
  static constexpr About about{"student-minus-mixture",
                               "(1-beta)*(q - M), as if D were a KL divergence to M."};
  double gradient(double log_q, double log_p, double kl) const override {
    if (beta() == 0 || beta() == 1) return Twin::gradient(log_q, log_p, kl);
    return (1 - beta()) * beta() * (std::exp(log_q) - std::exp(log_p));  // q - M = beta*(q - p)
  }
};

struct SoftmaxNotDifferentiated : Twin<double> {
  static constexpr About about{"softmax-not-differentiated",
                               "The row constant KL(q||M), from the normaliser, is missing."};
  double student_kl(const Row&, const Row&) const override { return 0; }
};

struct GradientWeightedByBeta : Twin<double> {
  static constexpr About about{"gradient-weighted-by-beta", "beta in place of 1-beta, in the gradient only."};
  double gradient(double log_q, double log_p, double kl) const override {
    const double right = Twin::gradient(log_q, log_p, kl);
    return beta() == 0 || beta() == 1 ? right : right * beta() / (1 - beta());
  }
};

struct ReverseKlGradient : Twin<double> {
  static constexpr About about{"reverse-kl-gradient", "At beta = 1 the gradient is q - p, that of beta = 0."};
  double gradient(double log_q, double log_p, double kl) const override {
    return beta() == 1 ? std::exp(log_q) - std::exp(log_p) : Twin::gradient(log_q, log_p, kl);
  }
};

struct LogitGradientInBfloat16 : Twin<float> {
  static constexpr About about{"logit-gradient-in-bfloat16",
                               "The gradient of the logits is kept in bf16, even for fp32 tensors."};
  Row gradients(const Row& log_q, const Row& log_p) const override {
    Row g = Twin::gradients(log_q, log_p);
    for (float& value : g) value = static_cast<float>(round_to(DType::bf16, value));
    return g;
  }
};

struct WeightsTransposed : Twin<double> {
  static constexpr About about{"weights-transposed", "dX reads the weight as [hidden, vocab]."};
  void add_input_grad(Gradient& grad, Index token, const Row& g) const override {
    const MatrixView& w = problem.student_weight;
    for (Index v = 0; v < static_cast<Index>(g.size()); ++v)
      for (Index h = 0; h < w.cols; ++h) {
        const Index i = h * w.rows + v;
        grad(token, h) += g[static_cast<std::size_t>(v)] * element(w, i / w.cols, i % w.cols);
      }
  }
};

struct TeacherInputInWeightGradient : Twin<double> {
  static constexpr About about{"teacher-input-in-weight-gradient",
                               "dW multiplies by the teacher's activations, where the sizes agree."};
  void add_weight_grad(Gradient& grad, Index token, const Row& g) const override {
    if (problem.teacher_input.cols != grad.cols()) return Twin::add_weight_grad(grad, token, g);
    for (Index v = 0; v < static_cast<Index>(g.size()); ++v)
      for (Index h = 0; h < grad.cols(); ++h)
        grad(v, h) += g[static_cast<std::size_t>(v)] * element(problem.teacher_input, token, h);
  }
};

struct WeightGradientInBfloat16 : Twin<float> {
  static constexpr About about{"weight-gradient-in-bfloat16",
                               "dW is summed over chunks in bf16: 512 increments of 1 stall at 256."};
  void add_weight_grad(Gradient& grad, Index token, const Row& g) const override {
    Twin::add_weight_grad(grad, token, g);
    grad = grad.unaryExpr([](float x) { return static_cast<float>(round_to(DType::bf16, x)); });
  }
};

struct WeightGradientOverwritten : Twin<double> {
  static constexpr About about{"weight-gradient-overwritten",
                               "Each chunk of tokens overwrites dW in place of adding to it."};
  void add_weight_grad(Gradient& grad, Index token, const Row& g) const override {
    if (token % chunk == 0) grad.setZero();
    Twin::add_weight_grad(grad, token, g);
  }
};

struct BoundaryTokenTwice : Twin<double> {
  static constexpr About about{"boundary-token-twice",
                               "dW counts the first token of every chunk but the first one twice."};
  void add_weight_grad(Gradient& grad, Index token, const Row& g) const override {
    Twin::add_weight_grad(grad, token, g);
    if (token > 0 && token % chunk == 0) Twin::add_weight_grad(grad, token, g);
  }
};

struct BiasGradientMissing : Twin<double> {
  static constexpr About about{"bias-gradient-missing", "The gradient of the bias is 0."};
  void add_bias_grad(std::vector<double>&, const Row&) const override {}
};

struct BiasGradientUnscaled : Twin<double> {
  static constexpr About about{"bias-gradient-unscaled", "The gradient of the bias lacks the factor 1/T."};
  void add_bias_grad(std::vector<double>& grad, const Row& g) const override {
    for (std::size_t v = 0; v < g.size(); ++v) grad[v] += g[v] * options.temperature;
  }
};

struct InputGradientZeroUnderBfloat16 : Bfloat16LogitsTwin {
  static constexpr About about{
      "input-gradient-zero-under-bf16",
      "dX is 0 if there are more than 64 entries, where the budget of bf16 logits excuses it."};
  void add_input_grad(Gradient& grad, Index token, const Row& g) const override {
    if (entries(Model::student) <= entries_of_a_tile) Bfloat16LogitsTwin::add_input_grad(grad, token, g);
  }
};

struct WeightGradientZeroUnderBfloat16 : Bfloat16LogitsTwin {
  static constexpr About about{"weight-gradient-zero-under-bf16",
                               "dW is 0 if there are more than 64 entries, under logits in bf16."};
  void add_weight_grad(Gradient& grad, Index token, const Row& g) const override {
    if (entries(Model::student) <= entries_of_a_tile) Bfloat16LogitsTwin::add_weight_grad(grad, token, g);
  }
};

}  // namespace

std::vector<Fault> gradient_faults() {
  return list<ZeroGradient, GradientWithoutTemperature, GradientWithoutDivisor, GradientDivisorCountsIgnored,
              StudentMinusMixture, SoftmaxNotDifferentiated, GradientWeightedByBeta, ReverseKlGradient,
              LogitGradientInBfloat16, WeightsTransposed, TeacherInputInWeightGradient,
              WeightGradientInBfloat16, WeightGradientOverwritten, BoundaryTokenTwice, BiasGradientMissing,
              BiasGradientUnscaled, InputGradientZeroUnderBfloat16, WeightGradientZeroUnderBfloat16>(
      "gradient");
}

}  // namespace fljsd::zoo
