// SPDX-License-Identifier: Apache-2.0
#include "verify/judge/budget.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>

#include "reference/error_bound/logit_scale.h"
#include "reference/parallel.h"

namespace fljsd {
namespace {

constexpr double u64 = 0x1p-53, u32 = 0x1p-24, u_bf16 = 0x1p-8;

// Sums in fp32: any order, round to nearest; or blocks of 16 products added at once, aligned and truncated,
// as Hopper's tensor cores do: 16 addends lose 2^-25 of the largest each, and the sum its last place, 2^-23.
// docs/error_analysis.md, section 11.
constexpr DotArithmetic fp32_dot{.unit = u32,
                                 .operands = u32,
                                 .smallest = 0x1p-126,
                                 .largest = 0x1.fffffep127,
                                 .block = 16,
                                 .truncation = 0x1p-23};

// What the rule of the one-pass statistics may cost (docs/one_pass.md, section 6): D and (1−beta)·KL(q‖M) to
// 6.5e-6 nats. Its largest error over all rows is 6.2e-6, at beta = 0.6; float32 sums have the budget of
// every formula.
constexpr double one_pass_promise = 6.5e-6;

constexpr ClassContract table[] = {
    {.accuracy_class = AccuracyClass::float64,
     .promise = "float64 throughout; results are stored in float64",
     .arithmetic = {.dot = {.unit = u64,
                            .smallest = std::numeric_limits<double>::denorm_min(),
                            .largest = std::numeric_limits<double>::max()},
                    .logit_storage = u64,
                    .formula = {.unit = u64, .smallest = std::numeric_limits<double>::denorm_min()},
                    .loss_storage = u64},
     .statistical = false},
    {.accuracy_class = AccuracyClass::fp32_logits,
     .promise = "logits summed and kept in fp32, fp32 after that; dlogits and gradients stored as the input",
     .arithmetic = {.dot = fp32_dot,
                    .logit_storage = u32,
                    .formula = {.unit = u32, .smallest = 0x1p-126, .approximation = one_pass_promise},
                    .loss_storage = u32,
                    .gradients_in_input_format = true},
     .statistical = true},
    {.accuracy_class = AccuracyClass::bf16_logits,
     .promise = "logits, log-probabilities, their gradients and losses may be stored in bf16",
     .arithmetic = {.dot = fp32_dot,
                    .logit_storage = u_bf16,
                    .formula = {.unit = u32,
                                .smallest = 0x1p-126,
                                .log_probability_storage = u_bf16,
                                .approximation = one_pass_promise},
                    .loss_storage = u_bf16,
                    .gradients_in_input_format = true,
                    .weight_grad_in_chunks = true},
     .statistical = true},
};

bool has_infinity(const MatrixView& matrix, Index rows, const std::vector<bool>* counted) {
  std::atomic<bool> found = false;
  constexpr Index elements = Index{1} << 20;  // a piece worth a thread
  const Index step = std::max<Index>(1, elements / std::max<Index>(1, matrix.cols));
  parallel_for((rows + step - 1) / step, [&](Index piece) {
    std::vector<double> row(static_cast<std::size_t>(matrix.cols));
    for (Index r = piece * step; r < std::min(rows, (piece + 1) * step) && !found; ++r) {
      if (counted && !(*counted)[static_cast<std::size_t>(r)]) continue;
      matrix.row(r, 0, matrix.cols, row.data());
      for (double x : row)
        if (std::isinf(x)) found = true;
    }
  });
  return found;
}

std::optional<std::string> why_gradients_are_not_judged(const Problem& problem, const Options& options,
                                                        const Result& truth) {
  for (std::size_t t = 0; t < truth.token_loss.size(); ++t)
    if (std::isinf(truth.token_loss[t])) return "the loss of token " + std::to_string(t) + " is infinite";
  std::vector<bool> counted;
  for (Index t = 0; t < problem.tokens(); ++t) counted.push_back(is_counted(problem, options, t));
  const Index valid = valid_vocab(problem, options);
  if (has_infinity(problem.student_input, problem.tokens(), &counted)) return "student_input holds infinity";
  if (has_infinity(problem.teacher_input, problem.tokens(), &counted)) return "teacher_input holds infinity";
  if (has_infinity(problem.student_weight, valid, nullptr)) return "student_weight holds infinity";
  if (has_infinity(problem.teacher_weight, valid, nullptr)) return "teacher_weight holds infinity";
  return std::nullopt;
}

// Of values that are the doubles nearest to the exact ones.
ErrorBound nearest_double_bound(const Result& truth) {
  const double least = std::numeric_limits<double>::denorm_min();
  const auto half_ulp = [&](double x) { return std::isfinite(x) ? u64 * std::abs(x) + least : 0; };
  ErrorBound bound;
  bound.loss = truth.loss ? half_ulp(*truth.loss) : 0;
  for (double x : truth.token_loss) bound.token_loss.push_back(half_ulp(x));
  for (double x : truth.student_bias_grad) bound.student_bias_grad.push_back(half_ulp(x));
  const auto rows = [&](const RowMajorMatrix<double>& grad, std::vector<double>& bounds, double& total) {
    for (Index r = 0; r < grad.rows(); ++r) {
      const auto cols = static_cast<std::size_t>(grad.cols());
      bounds.push_back(half_ulp(norms(std::span(grad.data() + r * grad.cols(), cols)).two));
    }
    total = norms(bounds).two;
  };
  rows(truth.student_input_grad, bound.student_input_grad, bound.student_input_grad_total);
  rows(truth.student_weight_grad, bound.student_weight_grad, bound.student_weight_grad_total);
  return bound;
}

void add(ErrorBound& bound, const ErrorBound& more) {
  const auto add_all = [](std::vector<double>& a, const std::vector<double>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  };
  bound.loss += more.loss;
  add_all(bound.token_loss, more.token_loss);
  add_all(bound.student_input_grad, more.student_input_grad);
  bound.student_input_grad_total += more.student_input_grad_total;
  add_all(bound.student_weight_grad, more.student_weight_grad);
  bound.student_weight_grad_total += more.student_weight_grad_total;
  add_all(bound.student_bias_grad, more.student_bias_grad);
}

}  // namespace

std::span<const ClassContract> contracts() {
  return table;
}

Budgets make_budgets(const Case& c, const Truth& truth, const Wanted& wanted,
                     std::optional<AccuracyClass> only) {
  const Problem problem = c.problem();
  const Options& options = c.options;
  Budgets budgets;
  budgets.only = only;
  const auto left_out = [&](const ClassContract& contract) {
    return only && contract.accuracy_class != *only;
  };
  const auto counted = static_cast<double>(count_tokens(problem, options));
  const auto vocab = static_cast<double>(problem.vocab());
  // Every logit of both models is one sum. Five sums over the vocabulary, an accumulated and a stored
  // gradient make seven for each token, accumulation, storage and chunks of two gradients six for each
  // vocabulary entry, and the loss and the three norms of whole gradients are four more.
  budgets.lambda = lambda_for(budget_failure_probability, 2 * counted * vocab + 7 * counted + 6 * vocab + 4);

  std::vector<ArithmeticModel> models = {double_tier_arithmetic()};
  for (const ClassContract& contract : table) {
    if (left_out(contract)) continue;
    models.push_back(contract.arithmetic);
    if (contract.statistical) models.push_back(contract.arithmetic.with_lambda(budgets.lambda));
  }
  std::vector<ErrorBound> bounds = error_bounds(problem, options, wanted, truth.result, models);

  budgets.truth = truth.certified ? nearest_double_bound(truth.result) : bounds[0];
  std::size_t next = 1;
  for (const ClassContract& contract : table) {
    if (left_out(contract)) {
      budgets.worst_case.emplace_back();
      budgets.allowed.emplace_back();
      continue;
    }
    ErrorBound worst_case = std::move(bounds[next++]);
    add(worst_case, budgets.truth);
    ErrorBound allowed = worst_case;
    if (contract.statistical) {
      allowed = std::move(bounds[next++]);
      add(allowed, budgets.truth);
    }
    budgets.worst_case.push_back(std::move(worst_case));
    budgets.allowed.push_back(std::move(allowed));
  }
  if (wanted.any_grad())
    budgets.gradients_not_judged = why_gradients_are_not_judged(problem, options, truth.result);
  return budgets;
}

}  // namespace fljsd
