// SPDX-License-Identifier: Apache-2.0
#include "verify/judge/verdict.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "verify/report/number.h"
#include "verify/report/table.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double loose_below = 1e-3;

// 0/0 is 0: nothing was allowed and nothing was off. NaN cannot occur: errors and budgets never are.
double test_ratio(double error, double budget) {
  if (error == 0) return 0;
  return budget > 0 ? (std::isinf(budget) ? 0 : error / budget) : infinity;
}

// One quantity that has an error and a budget at each of several positions.
struct Positions {
  const std::vector<double>& error;
  const std::vector<double>& budget;
  const std::vector<double>& worst_case;
  const std::vector<double>& bf16;
  std::vector<double> truth;  // absolute values or norms: the errors of a zero answer
};

// The verdict on the worst position: the one with the largest test ratio.
VerdictRow judge_worst(const std::string& quantity, const std::string& measure, const Positions& at,
                       Index mismatch) {
  VerdictRow row;
  row.quantity = quantity;
  row.measure = measure;
  std::size_t worst = 0, zero_worst = 0;
  bool unbounded = true;
  for (std::size_t i = 0; i < at.error.size(); ++i) {
    const double ratio = test_ratio(at.error[i], at.budget[i]);
    const double best = test_ratio(at.error[worst], at.budget[worst]);
    if (ratio > best || (ratio == best && at.error[i] > at.error[worst] && std::isfinite(at.budget[i])))
      worst = i;
    const double zero = test_ratio(at.truth[i], at.budget[i]);
    if (zero > row.zero_ratio) {
      row.zero_ratio = zero;
      zero_worst = i;
    }
    unbounded = unbounded && std::isinf(at.budget[i]);
  }
  row.error = at.error[worst];
  row.budget = at.budget[worst];
  row.ratio = test_ratio(row.error, row.budget);
  row.worst = row.error > 0 ? static_cast<Index>(worst) : -1;
  row.worst_case = at.worst_case[worst];
  row.bf16_budget = at.bf16[worst];
  row.zero_error = at.truth[zero_worst];
  row.pass = row.ratio <= 1;
  row.loose = row.pass && row.ratio < loose_below && row.zero_ratio > 0;
  if (mismatch >= 0) {
    // The truth is NaN or infinite there, which no budget excuses.
    row.worst = mismatch;
    row.error = row.ratio = infinity;
    row.pass = row.loose = false;
    row.note = "the truth is NaN or infinite at position " + std::to_string(mismatch) +
               ", the result is not the same";
  } else if (unbounded) {
    const bool all_matched = std::all_of(at.error.begin(), at.error.end(), [](double e) { return e == 0; });
    if (!all_matched) {
      row.judged = false;
      row.note = "nothing bounds the error here: the class may overflow";
    }
  }
  return row;
}

// The verdict on one number.
VerdictRow judge_one(const std::string& quantity, const std::string& measure, double error, double budget,
                     double worst_case, double bf16, double zero_error, bool bounded) {
  VerdictRow row;
  row.quantity = quantity;
  row.measure = measure;
  row.error = error;
  row.budget = budget;
  row.ratio = test_ratio(error, budget);
  row.worst_case = worst_case;
  row.bf16_budget = bf16;
  row.zero_error = zero_error;
  row.zero_ratio = test_ratio(zero_error, budget);
  if (!bounded) {
    row.pass = error == 0;
    row.ratio = row.pass ? 0 : infinity;
    if (!row.pass) row.note = "the truth is NaN or infinite, the result is not the same";
    return row;
  }
  row.pass = row.ratio <= 1;
  row.loose = row.pass && row.ratio < loose_below && row.zero_ratio > 0;
  if (std::isinf(budget)) {
    row.judged = false;
    row.note = "nothing bounds the error here: the class may overflow";
  }
  return row;
}

std::vector<double> absolute_values(const std::vector<double>& x) {
  std::vector<double> result(x.size());
  std::transform(x.begin(), x.end(), result.begin(),
                 [](double value) { return std::isfinite(value) ? std::abs(value) : 0; });
  return result;
}

// The first row that must match the truth and does not: where nothing bounds a row, an infinite truth need
// not be met, but a NaN must.
Index mismatch_row(const MatrixError& metric, const RowMajorMatrix<double>& truth,
                   const std::vector<double>& budget) {
  for (Index r = std::max<Index>(0, metric.mismatch_row); metric.mismatch_row >= 0 && r < truth.rows(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    const bool must_match = truth.row(r).hasNaN() || (!truth.row(r).allFinite() && budget[i] < infinity);
    if (must_match && metric.row_error[i] > 0) return r;
  }
  return -1;
}

void judge_matrix(Verdict& verdict, const std::string& quantity, const std::optional<MatrixError>& metric,
                  const RowMajorMatrix<double>& truth, std::vector<double> ErrorBound::*rows,
                  double ErrorBound::*total, const ErrorBound& allowed, const ErrorBound& worst_case,
                  const ErrorBound& bf16) {
  if (!metric) return;
  verdict.rows.push_back(
      judge_worst(quantity, "worst row, L2",
                  {metric->row_error, allowed.*rows, worst_case.*rows, bf16.*rows, metric->row_truth},
                  mismatch_row(*metric, truth, allowed.*rows)));
  double size = 0;
  for (double norm : metric->row_truth) size = std::hypot(size, norm);
  const auto relative = [&](double error) { return error == 0 ? 0 : error / size; };
  VerdictRow row = judge_one(quantity, "relative L2", metric->relative_l2, relative(allowed.*total),
                             relative(worst_case.*total), relative(bf16.*total), size > 0 ? 1 : 0, true);
  if (size == 0 || std::isinf(size)) {
    // Relative to nothing, or to a norm beyond float64: compare the norms themselves.
    row = judge_one(quantity, "relative L2", metric->absolute_l2, allowed.*total, worst_case.*total,
                    bf16.*total, 0, true);
    row.measure = size == 0 ? "L2 (the truth is 0)" : "L2";
  }
  verdict.rows.push_back(row);
}

}  // namespace

bool Verdict::pass() const {
  return std::all_of(rows.begin(), rows.end(), [](const VerdictRow& row) { return row.pass; });
}

const VerdictRow* Verdict::worst() const {
  const VerdictRow* worst = nullptr;
  for (const VerdictRow& row : rows)
    if (row.judged && (!worst || row.ratio > worst->ratio)) worst = &row;
  return worst;
}

Verdict judge(const Budgets& budgets, const Truth& truth, const Result& result, AccuracyClass accuracy_class,
              DType loss_format) {
  Verdict verdict;
  verdict.accuracy_class = accuracy_class;
  verdict.lambda = budgets.lambda;
  verdict.metrics = measure(truth.result, result, loss_format);
  const Metrics& metrics = verdict.metrics;
  const ErrorBound& allowed = budgets.of(accuracy_class);
  const ErrorBound& worst_case = budgets.worst_case_of(accuracy_class);
  const ErrorBound& bf16 = budgets.of(budgets.only.value_or(AccuracyClass::bf16_logits));

  // A loss that is NaN in truth must be NaN, and an infinite one infinite; but where the class may overflow
  // on the way, the latter may be NaN too, because an infinite logit leaves no distribution.
  const auto must_match = [](double truth_value, bool may_overflow) {
    return std::isnan(truth_value) || (std::isinf(truth_value) && !may_overflow);
  };
  const bool any_may_overflow =
      std::find(allowed.may_overflow.begin(), allowed.may_overflow.end(), true) != allowed.may_overflow.end();
  if (metrics.loss) {
    const double size = std::isfinite(metrics.loss->truth) ? std::abs(metrics.loss->truth) : 0;
    verdict.rows.push_back(judge_one("loss", "absolute", metrics.loss->absolute, allowed.loss,
                                     worst_case.loss, bf16.loss, size,
                                     !must_match(metrics.loss->truth, any_may_overflow)));
  }
  if (metrics.token_loss) {
    const VectorError& tokens = *metrics.token_loss;
    const std::vector<double>& losses = truth.result.token_loss;
    Index mismatch = -1;
    for (std::size_t t = 0; t < tokens.error.size(); ++t) {
      const bool bound = must_match(losses[t], allowed.may_overflow[t]);
      if (bound && tokens.error[t] > 0 && mismatch < 0) mismatch = static_cast<Index>(t);
      verdict.token_ratio.push_back(bound ? (tokens.error[t] == 0 ? 0 : infinity)
                                          : test_ratio(tokens.error[t], allowed.token_loss[t]));
    }
    verdict.rows.push_back(judge_worst(
        "token_loss", "worst token",
        {tokens.error, allowed.token_loss, worst_case.token_loss, bf16.token_loss, absolute_values(losses)},
        mismatch));
  }
  const std::size_t first_gradient = verdict.rows.size();
  judge_matrix(verdict, "student_input_grad", metrics.student_input_grad, truth.result.student_input_grad,
               &ErrorBound::student_input_grad, &ErrorBound::student_input_grad_total, allowed, worst_case,
               bf16);
  judge_matrix(verdict, "student_weight_grad", metrics.student_weight_grad, truth.result.student_weight_grad,
               &ErrorBound::student_weight_grad, &ErrorBound::student_weight_grad_total, allowed, worst_case,
               bf16);
  if (metrics.student_bias_grad) {
    const VectorError& bias = *metrics.student_bias_grad;
    verdict.rows.push_back(
        judge_worst("student_bias_grad", "worst element",
                    {bias.error, allowed.student_bias_grad, worst_case.student_bias_grad,
                     bf16.student_bias_grad, absolute_values(truth.result.student_bias_grad)},
                    bias.mismatch));
  }
  if (budgets.gradients_not_judged) {
    for (std::size_t i = first_gradient; i < verdict.rows.size(); ++i) {
      VerdictRow& row = verdict.rows[i];
      row.judged = false;
      row.pass = true;
      row.loose = false;
      row.note = "gradients are not judged: " + *budgets.gradients_not_judged;
    }
  }
  if (budgets.only && budgets.only != AccuracyClass::bf16_logits)
    for (VerdictRow& row : verdict.rows) row.bf16_budget = std::numeric_limits<double>::quiet_NaN();
  return verdict;
}

Verdict judge(const Case& c, const Truth& truth, const Wanted& wanted, const Result& result,
              AccuracyClass accuracy_class, DType loss_format) {
  return judge(make_budgets(c, truth, wanted), truth, result, accuracy_class, loss_format);
}

nlohmann::ordered_json to_json(const Verdict& verdict) {
  using Json = nlohmann::ordered_json;
  const auto numbers = [](const std::vector<double>& values) {
    Json list = Json::array();
    for (double x : values) list.push_back(json_number(x));
    return list;
  };
  // Null where the truth is 0, so that nothing is relative to it: the absolute error stands beside it.
  const auto relative = [](double value, double absolute) {
    return std::isinf(value) && std::isfinite(absolute) ? Json(nullptr) : json_number(value);
  };
  Json rows = Json::array();
  for (const VerdictRow& row : verdict.rows) {
    Json entry = {{"quantity", row.quantity},
                  {"measure", row.measure},
                  {"error", json_number(row.error)},
                  {"budget", json_number(row.budget)},
                  {"ratio", json_number(row.ratio)},
                  {"worst", row.worst >= 0 ? Json(row.worst) : Json(nullptr)},
                  {"worst_case", json_number(row.worst_case)},
                  {"zero_error", json_number(row.zero_error)},
                  {"zero_ratio", json_number(row.zero_ratio)},
                  {"bf16_budget", json_number(row.bf16_budget)},
                  {"judged", row.judged},
                  {"pass", row.pass},
                  {"loose", row.loose}};
    if (!row.note.empty()) entry["note"] = row.note;
    rows.push_back(entry);
  }
  const Metrics& m = verdict.metrics;
  Json metrics = Json::object();
  if (m.loss)
    metrics["loss"] = {{"truth", json_number(m.loss->truth)},
                       {"result", json_number(m.loss->result)},
                       {"absolute", json_number(m.loss->absolute)},
                       {"relative", relative(m.loss->relative, m.loss->absolute)},
                       {"ulps", relative(m.loss->ulps, m.loss->absolute)}};
  const auto vector = [&](const VectorError& e) {
    return Json{{"max", json_number(e.max)},
                {"median", json_number(e.median)},
                {"p99", json_number(e.p99)},
                {"worst", e.worst >= 0 ? Json(e.worst) : Json(nullptr)},
                {"relative_l2", relative(e.relative_l2, e.max)},
                {"cosine", json_number(e.cosine)}};
  };
  const auto matrix = [&](const MatrixError& e) {
    const double worst = e.worst_row >= 0 ? e.row_error[static_cast<std::size_t>(e.worst_row)] : 0;
    return Json{{"absolute_l2", json_number(e.absolute_l2)},
                {"relative_l2", relative(e.relative_l2, e.absolute_l2)},
                {"max_row_relative_l2", relative(e.max_row_relative_l2, worst)},
                {"worst_row", e.worst_row >= 0 ? Json(e.worst_row) : Json(nullptr)},
                {"cosine", json_number(e.cosine)}};
  };
  if (m.token_loss) {
    metrics["token_loss"] = vector(*m.token_loss);
    metrics["token_loss"]["error"] = numbers(m.token_loss->error);
    metrics["token_loss"]["ratio"] = numbers(verdict.token_ratio);
  }
  if (m.student_input_grad) metrics["student_input_grad"] = matrix(*m.student_input_grad);
  if (m.student_weight_grad) metrics["student_weight_grad"] = matrix(*m.student_weight_grad);
  if (m.student_bias_grad) metrics["student_bias_grad"] = vector(*m.student_bias_grad);
  return {{"class", name(verdict.accuracy_class)},
          {"pass", verdict.pass()},
          {"lambda", json_number(verdict.lambda)},
          {"failure_probability", budget_failure_probability},
          {"rows", rows},
          {"metrics", metrics}};
}

std::string format(const Verdict& verdict) {
  Table table({"quantity", "measure", "error", "budget", "error/budget", "zero answer",
               "bf16 logits\nallowed", "at", ""},
              {1, 8});
  for (const VerdictRow& row : verdict.rows) {
    const std::string outcome = !row.judged ? "not judged"
                                : !row.pass ? "FAIL"
                                : row.loose ? "pass, far below"
                                            : "pass";
    const Style style = !row.judged ? Style::dim : row.pass ? Style::good : Style::bad;
    table.add({row.quantity,
               row.measure,
               short_number(row.error),
               short_number(row.budget),
               {short_number(row.ratio), row.pass ? Style::plain : Style::bad},
               short_number(row.zero_error),
               short_number(row.bf16_budget),
               row.worst >= 0 ? std::to_string(row.worst) : "",
               {outcome, style}});
  }
  std::string text = table.text();
  for (const VerdictRow& row : verdict.rows)
    if (!row.note.empty()) text += fmt::format("  {} ({}): {}.\n", row.quantity, row.measure, row.note);
  const VerdictRow* worst = verdict.worst();
  if (!verdict.pass()) {
    text += fmt::format("  Breaks the budget of class {}", name(verdict.accuracy_class));
    if (worst)
      text += fmt::format(": {} ({}) is {} times what is allowed", worst->quantity, worst->measure,
                          short_number(worst->ratio));
    text += ".\n";
  } else {
    text += fmt::format("  Within the budget of class {}.\n", name(verdict.accuracy_class));
  }
  return text;
}

}  // namespace fljsd
