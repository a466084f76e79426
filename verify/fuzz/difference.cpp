// SPDX-License-Identifier: Apache-2.0
#include "verify/fuzz/difference.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "verify/report/number.h"

namespace fljsd {
namespace {

constexpr std::array<const char*, 5> quantities{"token_loss", "loss", "student_input_grad",
                                                "student_weight_grad", "student_bias_grad"};

bool same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

std::optional<Difference> first_difference(const char* quantity, const std::vector<double>& a,
                                           const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (!same(a[i], b[i])) return Difference{quantity, fmt::format("{}[{}]", quantity, i), a[i], b[i]};
  return std::nullopt;
}

std::optional<Difference> first_difference(const char* quantity, const RowMajorMatrix<double>& a,
                                           const RowMajorMatrix<double>& b) {
  for (Index r = 0; r < std::min(a.rows(), b.rows()); ++r)
    for (Index c = 0; c < a.cols(); ++c)
      if (!same(a(r, c), b(r, c)))
        return Difference{quantity, fmt::format("{}[{}, {}]", quantity, r, c), a(r, c), b(r, c)};
  return std::nullopt;
}

// The element of the matrix's row that is most wrong.
JudgedValue worst_in_row(const std::string& quantity, const RowMajorMatrix<double>& truth,
                         const RowMajorMatrix<double>& got, Index row, double allowed) {
  Index worst = 0;
  for (Index c = 1; c < truth.cols(); ++c)
    if (absolute_error(truth(row, c), got(row, c)) > absolute_error(truth(row, worst), got(row, worst)))
      worst = c;
  return {fmt::format("{}[{}, {}]", quantity, row, worst), got(row, worst), truth(row, worst), allowed,
          false};
}

// The row of a matrix with the largest error in the 2-norm; infinite errors first.
Index worst_row(const RowMajorMatrix<double>& truth, const RowMajorMatrix<double>& got) {
  Index worst = 0;
  double largest = -1;
  for (Index r = 0; r < truth.rows(); ++r) {
    double error = 0;
    for (Index c = 0; c < truth.cols(); ++c)
      error = std::hypot(error, absolute_error(truth(r, c), got(r, c)));
    if (error > largest) largest = error, worst = r;
  }
  return worst;
}

double at(const std::vector<double>& values, Index i) {
  return i >= 0 && static_cast<std::size_t>(i) < values.size() ? values[static_cast<std::size_t>(i)] : 0;
}

const std::vector<double>& positions(const std::string& quantity, const ErrorBound& bound) {
  if (quantity == "token_loss") return bound.token_loss;
  if (quantity == "student_input_grad") return bound.student_input_grad;
  if (quantity == "student_weight_grad") return bound.student_weight_grad;
  return bound.student_bias_grad;
}

}  // namespace

const char* manner_of(const JudgedValue& value) {
  if (!std::isfinite(value.truth)) return manner::special_lost;
  return std::isfinite(value.got) ? manner::off : manner::not_finite;
}

int rank_of_quantity(const std::string& quantity) {
  for (std::size_t i = 0; i < quantities.size(); ++i)
    if (quantity == quantities[i]) return static_cast<int>(i);
  return static_cast<int>(quantities.size());
}

JudgedValue worst_value(const VerdictRow& row, const Truth& truth, const Result& got,
                        const ErrorBound& allowed) {
  JudgedValue value;
  if (row.quantity == "loss") {
    value = {"loss", *got.loss, *truth.result.loss, allowed.loss, false};
  } else if (row.quantity == "token_loss") {
    value = {fmt::format("token_loss[{}]", row.worst), at(got.token_loss, row.worst),
             at(truth.result.token_loss, row.worst), at(allowed.token_loss, row.worst), false};
  } else if (row.quantity == "student_bias_grad") {
    value = {fmt::format("student_bias_grad[{}]", row.worst), at(got.student_bias_grad, row.worst),
             at(truth.result.student_bias_grad, row.worst), at(allowed.student_bias_grad, row.worst), false};
  } else {
    const bool input = row.quantity == "student_input_grad";
    const auto& true_grad = input ? truth.result.student_input_grad : truth.result.student_weight_grad;
    const auto& grad = input ? got.student_input_grad : got.student_weight_grad;
    const Index at_row = row.worst >= 0 ? row.worst : worst_row(true_grad, grad);
    value = worst_in_row(row.quantity, true_grad, grad, at_row, at(positions(row.quantity, allowed), at_row));
  }
  value.certified = truth.certified;
  return value;
}

double own_bound(const VerdictRow& row, const ErrorBound& truth_bound, const ErrorBound& allowed) {
  if (row.quantity == "loss") return truth_bound.loss;
  if (row.worst >= 0) return at(positions(row.quantity, truth_bound), row.worst);
  // A norm of the whole gradient, relative to the truth's: so is the row's budget.
  const bool input = row.quantity == "student_input_grad";
  const auto total = input ? &ErrorBound::student_input_grad_total : &ErrorBound::student_weight_grad_total;
  return truth_bound.*total / (allowed.*total) * row.budget;
}

std::string sentence(const VerdictRow& row, const JudgedValue& value, AccuracyClass accuracy_class) {
  const auto shown = [](double x) {
    return std::isfinite(x) ? fmt::format("{} ({})", x, hex_float(x)) : hex_float(x);
  };
  if (!std::isfinite(value.truth) || !std::isfinite(value.got))
    return fmt::format("{} is {}, but the truth is {}", value.what, shown(value.got), shown(value.truth));
  std::string text =
      fmt::format("{} is {}, but the truth is {}", value.what, shown(value.got), shown(value.truth));
  if (row.measure == "absolute" || row.measure == "worst token" || row.measure == "worst element") {
    text += fmt::format(": {} allows {}", name(accuracy_class), short_number(row.budget));
  } else {
    text += fmt::format(": {}, its error is {}, and {} allows {}", row.measure, short_number(row.error),
                        name(accuracy_class), short_number(row.budget));
  }
  return text;
}

std::optional<Difference> first_difference(const Result& a, const Result& b) {
  if (auto found = first_difference("token_loss", a.token_loss, b.token_loss)) return found;
  if (a.loss && b.loss && !same(*a.loss, *b.loss)) return Difference{"loss", "loss", *a.loss, *b.loss};
  if (auto found = first_difference("student_input_grad", a.student_input_grad, b.student_input_grad))
    return found;
  if (auto found = first_difference("student_weight_grad", a.student_weight_grad, b.student_weight_grad))
    return found;
  return first_difference("student_bias_grad", a.student_bias_grad, b.student_bias_grad);
}

}  // namespace fljsd
