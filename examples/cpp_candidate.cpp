// SPDX-License-Identifier: Apache-2.0
// A C++ implementation with fp32 logits, and the three lines of main() that make it a candidate.
//
//   ./fljsd fuzz --candidate "exec:build/release/bin/cpp_candidate"
//
// A CUDA kernel fits in the same place: copy the tensors' bytes to the device, launch, copy the results back.
#include <cmath>
#include <limits>
#include <vector>

#include "verify/candidates/function_candidate.h"
#include "verify/candidates/serve.h"

namespace {

using fljsd::Index;

constexpr float infinity = std::numeric_limits<float>::infinity();

// log softmax of one token's logits over the vocabulary; the sums are in float, one product after the other.
std::vector<float> log_softmax(const fljsd::MatrixView& input, const fljsd::MatrixView& weight,
                               const std::optional<fljsd::VectorView>& bias, Index token, Index vocab,
                               float temperature) {
  std::vector<float> x(static_cast<std::size_t>(vocab));
  float top = -infinity;
  for (Index v = 0; v < vocab; ++v) {
    float sum = 0;
    for (Index h = 0; h < input.cols; ++h)
      sum += static_cast<float>(input(token, h)) * static_cast<float>(weight(v, h));
    if (bias) sum += static_cast<float>((*bias)(v));
    sum /= temperature;
    x[static_cast<std::size_t>(v)] = sum;
    if (!(sum <= top)) top = sum;  // NaN stays, and makes the whole row NaN
  }
  float total = 0;
  for (const float logit : x) total += std::exp(logit - top);
  for (float& logit : x) logit = (logit - top) - std::log(total);
  return x;
}

// a · (log a − log b): 0 for a = 0, and infinite for b = 0 even if a underflows.
float term(float log_a, float log_b) {
  if (log_a == -infinity) return 0;
  if (log_b == -infinity) return infinity;
  return std::exp(log_a) * (log_a - log_b);
}

float log_mixture(float log_p, float log_q, float beta) {
  if (log_p == log_q) return log_p;  // exactly, so that equal distributions give exactly 0
  const float a = log_p + std::log(beta), b = log_q + std::log1p(-beta);
  if (a == -infinity) return b;
  return std::fmax(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
}

// The losses of all tokens, and their sum or mean. No gradients: this example declares that it lacks them.
fljsd::Outcome linear_jsd(const fljsd::Problem& problem, const fljsd::Options& options,
                          const fljsd::Request&) {
  const auto beta = static_cast<float>(options.beta), temperature = static_cast<float>(options.temperature);
  const Index vocab = fljsd::valid_vocab(problem, options);
  fljsd::Answer answer;
  answer.result.token_loss.assign(static_cast<std::size_t>(problem.tokens()), 0);
  float sum = 0;
  for (Index t = 0; t < problem.tokens(); ++t) {
    if (!fljsd::is_counted(problem, options, t)) continue;  // it may hold NaN
    const auto log_q = log_softmax(problem.student_input, problem.student_weight, problem.student_bias, t,
                                   vocab, temperature);
    const auto log_p = log_softmax(problem.teacher_input, problem.teacher_weight, problem.teacher_bias, t,
                                   vocab, temperature);
    float loss = 0;
    for (std::size_t v = 0; v < log_q.size(); ++v) {
      const float p = log_p[v], q = log_q[v];
      if (beta == 0) {
        loss += term(p, q);
      } else if (beta == 1) {
        loss += term(q, p);
      } else {
        const float m = log_mixture(p, q, beta);
        loss += beta * term(p, m) + (1 - beta) * term(q, m);
      }
    }
    answer.result.token_loss[static_cast<std::size_t>(t)] = loss;
    sum += loss;
  }
  const Index divisor = fljsd::reduction_divisor(options, fljsd::count_tokens(problem, options));
  if (options.reduction != fljsd::Reduction::none) answer.result.loss = sum / static_cast<float>(divisor);
  answer.loss_format = fljsd::DType::f32;
  return answer;
}

}  // namespace

int main() {
  using fljsd::Feature;
  fljsd::ViewCandidate candidate("cpp", "a plain loop",
                                 {fljsd::AccuracyClass::fp32_logits, true, {Feature::grad, Feature::f64}},
                                 linear_jsd);
  return fljsd::serve(candidate);
}
