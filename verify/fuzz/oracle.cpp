// SPDX-License-Identifier: Apache-2.0
#include "verify/fuzz/oracle.h"

#include <cmath>

#include "reference/enclosure.h"
#include "verify/fuzz/case_copy.h"

namespace fljsd {
namespace {

// Interval operations of the products that a certified answer may take: about a tenth of a second.
constexpr Index certified_work = 100000;

// The double that an enclosure settles; nothing if it settles none.
std::optional<double> settled(const Enclosure& enclosure) {
  if (enclosure.rounds_to) return enclosure.rounds_to;
  if (enclosure.lo == enclosure.hi || (std::isnan(enclosure.lo) && std::isnan(enclosure.hi)))
    return enclosure.lo;
  return std::nullopt;
}

// Collects settled values and remembers whether all were.
struct Settler {
  bool all = true;

  double operator()(const Enclosure& enclosure) {
    const std::optional<double> value = settled(enclosure);
    all = all && value;
    return value.value_or(0);
  }
  std::vector<double> operator()(const std::vector<Enclosure>& enclosures) {
    std::vector<double> values;
    for (const Enclosure& enclosure : enclosures) values.push_back((*this)(enclosure));
    return values;
  }
  RowMajorMatrix<double> operator()(const std::vector<Enclosure>& enclosures, Index rows, Index cols) {
    RowMajorMatrix<double> matrix(rows, cols);
    for (std::size_t i = 0; i < enclosures.size(); ++i) matrix.data()[i] = (*this)(enclosures[i]);
    return matrix;
  }
};

}  // namespace

Wanted Oracle::wanted(const Case& c) const {
  return {grad_, grad_, grad_ && c.student_bias.has_value(), std::nullopt};
}

const OracleAnswer& Oracle::answer(const Case& c) {
  std::unique_ptr<const OracleAnswer>& known = answers_[fingerprint(c)];
  if (!known) {
    Truth truth{linear_jsd<double>(c.problem(), c.options, wanted(c))};
    Budgets budgets = make_budgets(c, truth, wanted(c), accuracy_class_);
    known = std::make_unique<const OracleAnswer>(OracleAnswer{std::move(truth), std::move(budgets)});
  }
  return *known;
}

std::optional<OracleAnswer> Oracle::certified(const Case& c) {
  const Problem problem = c.problem();
  const Index hidden = problem.student_input.cols + problem.teacher_input.cols;
  if (problem.tokens() * problem.vocab() * hidden > certified_work) return std::nullopt;
  Wanted want = wanted(c);
  // What is not judged may well be impossible to settle.
  if (answer(c).budgets.gradients_not_judged) want = {};

  const CertifiedResult result = certify(problem, c.options, want);
  Settler settle;
  Truth truth;
  truth.certified = true;
  if (result.loss) truth.result.loss = settle(*result.loss);
  truth.result.counted = result.counted;
  truth.result.token_loss = settle(result.token_loss);
  const Index cols = problem.student_input.cols;
  if (want.student_input_grad) {
    truth.result.student_input_grad = settle(result.student_input_grad, problem.tokens(), cols);
    truth.result.student_weight_grad = settle(result.student_weight_grad, problem.vocab(), cols);
  }
  truth.result.student_bias_grad = settle(result.student_bias_grad);
  if (!settle.all) return std::nullopt;
  Budgets budgets = make_budgets(c, truth, want, accuracy_class_);
  budgets.gradients_not_judged = answer(c).budgets.gradients_not_judged;
  return OracleAnswer{std::move(truth), std::move(budgets)};
}

}  // namespace fljsd
