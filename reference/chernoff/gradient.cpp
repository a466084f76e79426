// SPDX-License-Identifier: Apache-2.0
// The second sweep. docs/one_pass.md, section 9.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <string>

#include "reference/chernoff.h"
#include "reference/chernoff/float_functions.h"

namespace fljsd {
namespace {

// log p_v − log q_v = (y_v − x_v) − shift, to within u of itself and of the shift's own error. The difference
// of the logits is formed as rounded + lost exactly (TwoSum), and the shift is a pair too, so that nothing is
// lost when both are large and nearly equal, nor when the rows are close.
class LogRatioOfRow {
 public:
  explicit LogRatioOfRow(const OnePassRow& row) {
    const double shift = (row.teacher.max - row.student.max) + (row.teacher.log_sum - row.student.log_sum);
    high_ = static_cast<float>(shift);
    low_ = static_cast<float>(shift - high_);
  }
  float operator()(float x, float y) const {
    const float rounded = y - x;
    const float from_x = y - rounded;
    const float lost = (y - (rounded + from_x)) + (from_x - x);
    if (!std::isfinite(rounded)) return rounded;
    return (rounded - high_) + (lost - low_);
  }

 private:
  float high_, low_;
};

// q_v or p_v in float32.
class Softmax {
 public:
  explicit Softmax(const LogSumExp& lse)
      : max_(static_cast<float>(lse.max)), scale_(static_cast<float>(std::exp(-lse.log_sum))) {}
  float operator()(float logit) const {
    return exp2_float((logit - max_) * static_cast<float>(std::numbers::log2e)) * scale_;
  }

 private:
  float max_, scale_;
};

float softplus(float s) {
  return s > 0 ? s + std::log1p(std::exp(-s)) : std::log1p(std::exp(s));
}

// ln(M_v/q_v) = ln(1 + beta·expm1(d)), accurate near d = 0.
float log_mixture_ratio(float d, float beta, float rest) {
  if (d > 30) return d + std::log(beta + rest * std::exp(-d));  // e^d may overflow
  const float z = beta * std::expm1(d);
  return z < -0.5f ? std::log(rest + beta * std::exp(d)) : std::log1p(z);
}

}  // namespace

OnePassCertificate one_pass_gradient(std::span<const float> x, std::span<const float> y,
                                     const OnePassRow& row, const OnePassPlan& plan, std::span<float> dlogits,
                                     double tolerance) {
  if (x.size() != y.size() || x.size() != dlogits.size()) {
    throw std::invalid_argument("x, y and dlogits have " + std::to_string(x.size()) + ", " +
                                std::to_string(y.size()) + " and " + std::to_string(dlogits.size()) +
                                " entries, but they must be equal.");
  }
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  if (std::isnan(row.divergence)) {
    std::fill(dlogits.begin(), dlogits.end(), std::numeric_limits<float>::quiet_NaN());
    return {nan, nan, nan, true};
  }
  const double beta = plan.config().beta;
  const Softmax student(row.student), teacher(row.teacher);
  const LogRatioOfRow log_ratio(row);
  if (beta == 0) {
    double size = 0;
    for (std::size_t v = 0; v < x.size(); ++v) {
      const float q = student(x[v]), p = teacher(y[v]), d = log_ratio(x[v], y[v]);
      // q − p, without cancelling where the two are close
      const float gradient = !(std::abs(d) < 1) ? q - p : d > 0 ? p * std::expm1(-d) : -q * std::expm1(d);
      dlogits[v] = gradient;
      size += std::abs(static_cast<double>(gradient));
    }
    return {nan, nan, size, false};
  }

  // Three ways to write the same number, constant − term(v):
  //   softplus form    kappa − ln(1 + e^{s_v}), s_v = d_v + logit(beta)
  //   difference form  −KL(q‖M) − ln(M_v/q_v)
  //   beta = 1         −KL(q‖p) − d_v
  // The first two differ by ln(1−beta) on both sides. The one with the smaller constant is taken: kappa is
  // small when the models exclude each other's tokens, KL when they agree, and there the gradient is small
  // too.
  enum class Form { softplus, difference, endpoint };
  const Form form = beta == 1                     ? Form::endpoint
                    : row.kappa <= row.student_kl ? Form::softplus
                                                  : Form::difference;
  const double constant = form == Form::softplus ? row.kappa : -row.student_kl;
  const float constant32 = static_cast<float>(constant),
              factor = static_cast<float>(beta == 1 ? 1.0 : 1 - beta);
  const float beta32 = static_cast<float>(beta), rest32 = static_cast<float>(1 - beta);
  const float log_odds = beta == 1 ? 0.0f : static_cast<float>(std::log(beta) - std::log1p(-beta));
  double swept = 0, size = 0;
  for (std::size_t v = 0; v < x.size(); ++v) {
    const float q = student(x[v]);
    if (q == 0) {
      dlogits[v] = 0;  // q·log q -> 0; a NaN logit has no such q
      continue;
    }
    const float d = log_ratio(x[v], y[v]);
    const float term = form == Form::softplus     ? softplus(d + log_odds)
                       : form == Form::difference ? log_mixture_ratio(d, beta32, rest32)
                                                  : d;
    const float gradient = q * (constant32 - term);
    swept += static_cast<double>(q) * term;
    size += std::abs(static_cast<double>(gradient));
    dlogits[v] = factor * gradient;
  }
  const double error = constant - swept;
  // 2^-51: a few roundings of float64 in the constant, which is at most 1 or so; at p = q that is all there
  // is.
  const bool missed = !(std::abs(error) <= tolerance * size + 0x1p-51);
  // Back from −KL(q‖M) to kappa = −ln(1−beta) − KL(q‖M); at beta = 1 to KL(q‖p) itself.
  switch (form) {
    case Form::softplus: return {swept, error, size, missed};
    case Form::difference: return {swept - std::log1p(-beta), error, size, missed};
    case Form::endpoint: break;
  }
  return {-swept, -error, size, missed};
}

OnePassRow with_swept_constant(const OnePassRow& row, const OnePassCertificate& certificate,
                               const OnePassPlan& plan) {
  const double beta = plan.config().beta;
  OnePassRow result = row;
  if (beta == 0) return result;
  if (beta == 1) {
    result.student_kl = certificate.swept;
    return result;
  }
  result.kappa = certificate.swept;
  result.student_kl = -std::log1p(-beta) - certificate.swept;
  return result;
}

}  // namespace fljsd
