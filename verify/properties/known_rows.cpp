// SPDX-License-Identifier: Apache-2.0
// Rows whose answer is known because they are made to order, where even coarse logits leave the gradient many
// correct digits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "verify/cases/random.h"
#include "verify/properties/checks.h"
#include "verify/properties/compare.h"

namespace fljsd::checks {
namespace {

// Logits of the two plausible entries and of all others, in units of the temperature. The models disagree, so
// that the gradient is of order 1, and logits are so small that rounding them to bf16 costs a few percent of
// it.
constexpr double student_logits[] = {0, -1}, teacher_logits[] = {-3, 0}, implausible = -128;
// Loss and gradient here are made of a dozen operations on numbers of at most 128.
constexpr double own_rounding = 0x1p-40;

struct KnownRow {
  double loss = 0;
  std::vector<double> gradient;  // dD/dx_v
};

std::vector<double> log_softmax(std::vector<double> x) {
  const double max = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double value : x) sum += std::exp(value - max);
  for (double& value : x) value -= max + std::log(sum);
  return x;
}

// The textbook's formulas: here no probability underflows and no two are close.
KnownRow known_row(const std::vector<double>& x, const std::vector<double>& y, double beta) {
  const std::vector<double> log_q = log_softmax(x), log_p = log_softmax(y);
  KnownRow row;
  double kl = 0;  // KL(q‖M); KL(q‖p) at beta = 1
  std::vector<double> score(x.size());
  for (std::size_t v = 0; v < x.size(); ++v) {
    const double q = std::exp(log_q[v]), p = std::exp(log_p[v]);
    const double log_m = beta == 0 ? log_q[v] : beta == 1 ? log_p[v] : std::log(beta * p + (1 - beta) * q);
    score[v] = log_q[v] - log_m;
    kl += q * score[v];
    row.loss += (beta == 0 ? 1 : beta) * (beta == 1 ? 0 : p * (log_p[v] - log_m));
    row.loss += (beta == 1 ? 1 : 1 - beta) * q * score[v];
  }
  for (std::size_t v = 0; v < x.size(); ++v) {
    const double q = std::exp(log_q[v]), p = std::exp(log_p[v]);
    row.gradient.push_back(beta == 0 ? q - p : (beta == 1 ? 1 : 1 - beta) * q * (score[v] - kl));
  }
  return row;
}

// The elements of a matrix with non-finite ones replaced by 0, or all by 0, and the first column overwritten.
Tensor with_first_column(const Tensor& matrix, bool keep, const std::vector<double>& column) {
  std::vector<double> values = elements(matrix);
  for (double& x : values)
    if (!keep || !std::isfinite(x)) x = 0;
  const auto cols = static_cast<std::size_t>(matrix.shape[1]);
  for (std::size_t r = 0; r < column.size(); ++r) values[r * cols] = column[r];
  return make_tensor(matrix.dtype, matrix.shape, values);
}

std::vector<double> first_column(const Tensor& matrix) {
  const MatrixView view = matrix.matrix();
  std::vector<double> column;
  for (Index r = 0; r < view.rows; ++r) column.push_back(view(r, 0));
  return column;
}

}  // namespace

// Column 0 alone makes the logits: it is 1 in all inputs, and all products of the other columns are 0, either
// because inputs are or because weights are. Two entries share nearly all probability, others have e^−128 of
// it. So D and g = dD/dx are the same for every token and follow from two columns of numbers,
//
//   dX_t = Σ_v g_v·w_v / (T·divisor),   dW_v = g_v·Σ_t a_t / (T·divisor),
//
// with the weights w of the case if its inputs were cleared, or the inputs a if its weights were. The errors
// of stored logits and log-probabilities are those of numbers up to 3, at two entries, whatever the
// vocabulary: so the bound of a class with bf16 logits, too, is a few percent of the gradient.
PropertyOutcome two_plausible_entries(const Case& c, const Implementation& implementation,
                                      std::uint64_t seed) {
  Case known = with_valid_vocab_only(c);
  const Index vocab = known.student_weight.shape[0];
  if (vocab < 2) return not_applicable("two entries are needed.");
  const double beta = c.options.beta, temperature = c.options.temperature;
  // Near an endpoint, but not at it, the gradient is small beside what bf16 loses.
  if (beta > 0 && beta < 1) known.options.beta = std::clamp(beta, 0.125, 0.875);
  known.student_bias.reset();
  known.teacher_bias.reset();

  const Random random(seed, 0x74776f656e747269);
  const bool keep_weight = random.below(0, 2) == 0;
  const Index first = random.below(1, vocab), second = (first + 1 + random.below(2, vocab - 1)) % vocab;
  const auto column = [&](const double(&logits)[2]) {
    std::vector<double> values(static_cast<std::size_t>(vocab), implausible * temperature);
    values[static_cast<std::size_t>(first)] = logits[0] * temperature;
    values[static_cast<std::size_t>(second)] = logits[1] * temperature;
    return values;
  };
  const std::vector<double> ones(static_cast<std::size_t>(c.student_input.shape[0]), 1);
  known.student_input = with_first_column(known.student_input, !keep_weight, ones);
  known.teacher_input = with_first_column(known.teacher_input, false, ones);
  known.student_weight = with_first_column(known.student_weight, keep_weight, column(student_logits));
  known.teacher_weight = with_first_column(known.teacher_weight, false, column(teacher_logits));
  std::vector<double> x = first_column(known.student_weight), y = first_column(known.teacher_weight);
  for (std::vector<double>* logits : {&x, &y}) {
    for (double& value : *logits) {
      if (!std::isfinite(value)) return not_applicable("a logit is beyond the weight's format.");
      value /= temperature;
    }
    // With a temperature so low that the weight's format has no such small numbers, it is another row.
    if (std::abs((*logits)[static_cast<std::size_t>(first)] - (*logits)[static_cast<std::size_t>(second)]) <
        0.5)
      return not_applicable("the logits are below the weight's format.");
  }
  if (auto outcome = lacking(implementation, {&known})) return *outcome;

  const Evaluation e(known, implementation);
  const KnownRow row = known_row(x, y, known.options.beta);
  const MatrixView input = e.problem.student_input, weight = e.problem.student_weight;
  const double scale =
      1 / temperature /
      static_cast<double>(reduction_divisor(known.options, count_tokens(e.problem, known.options)));
  Comparison comparison;
  std::vector<double> expected(static_cast<std::size_t>(input.cols)), input_sum(expected.size());
  double input_grad_size = 0, input_size = 0;
  for (Index h = 0; h < input.cols; ++h) {
    const auto i = static_cast<std::size_t>(h);
    for (Index v = 0; v < vocab; ++v) {
      const double term = scale * row.gradient[static_cast<std::size_t>(v)] * weight(v, h);
      expected[i] += term;
      input_grad_size += std::abs(term);
    }
    for (Index t = 0; t < input.rows; ++t) {
      if (!is_counted(e.problem, known.options, t)) continue;
      input_sum[i] += input(t, h);
      input_size += std::abs(input(t, h));
    }
  }
  for (Index t = 0; t < input.rows; ++t) {
    const auto i = static_cast<std::size_t>(t);
    const bool counted = is_counted(e.problem, known.options, t);
    if (i < e.result.token_loss.size())
      comparison.equal(fmt::format("token_loss[{}]", t), e.result.token_loss[i], counted ? row.loss : 0,
                       counted ? e.bound.token_loss[i] + own_rounding : 0, true);
    if (!counted || e.result.student_input_grad.size() == 0) continue;
    comparison.equal_rows(fmt::format("student_input_grad[{}]", t), row_of(e.result.student_input_grad, t),
                          expected, e.bound.student_input_grad[i] + own_rounding * input_grad_size, true);
  }
  for (Index v = 0; v < e.result.student_weight_grad.rows(); ++v) {
    const auto i = static_cast<std::size_t>(v);
    std::vector<double> weight_grad = input_sum;
    for (double& value : weight_grad) value *= scale * row.gradient[i];
    comparison.equal_rows(
        fmt::format("student_weight_grad[{}]", v), row_of(e.result.student_weight_grad, v), weight_grad,
        e.bound.student_weight_grad[i] + own_rounding * scale * std::abs(row.gradient[i]) * input_size, true);
  }
  return comparison.outcome();
}

}  // namespace fljsd::checks
