// SPDX-License-Identifier: Apache-2.0
// Answers against the oracle.
#include <algorithm>
#include <cmath>
#include <limits>

#include "verify/fuzz/difference.h"
#include "verify/fuzz/examine.h"
#include "verify/judge/verdict.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// KL(p‖q) is infinite where an entry has p > 0 and q = 0. Whether such entries have, for the token, less
// probability together than fp32's smallest normal number (with a margin for the logits' rounding), so that
// an implementation of fp32 may well say that they have none.
bool infinite_by_underflow(const Case& c, Index token) {
  constexpr double smallest = 0x1p-126 * 1e6;
  const LogitRows<double> row = logits<double>(c.problem(), c.options, token);
  const bool forward = c.options.beta == 0;
  const std::vector<double>& weight = forward ? row.teacher : row.student;
  const std::vector<double>& support = forward ? row.student : row.teacher;
  const double max = *std::max_element(weight.begin(), weight.end());
  double outside = 0, total = 0;
  for (std::size_t v = 0; v < weight.size(); ++v) {
    const double share = std::exp(weight[v] - max);
    total += share;
    if (support[v] == -infinity) outside += share;
  }
  return outside < smallest * total;
}

// The same for a row of a verdict: the token that it names, or all whose loss is infinite.
bool infinite_by_underflow(const Case& c, const VerdictRow& row, const std::vector<double>& true_token_loss) {
  if (row.quantity == "token_loss" && row.worst >= 0) return infinite_by_underflow(c, row.worst);
  for (std::size_t t = 0; t < true_token_loss.size(); ++t)
    if (std::isinf(true_token_loss[t]) && !infinite_by_underflow(c, static_cast<Index>(t))) return false;
  return true;
}

// Whether the oracle's own error is not far below what the error exceeds its budget by.
bool may_be_the_oracles(const VerdictRow& row, const JudgedValue& value, double own_bound) {
  const double excess = std::isfinite(value.truth) ? row.error - row.budget : infinity;
  return !(own_bound <= excess / 16) || (std::isinf(excess) && std::isinf(own_bound));
}

}  // namespace

std::vector<Failed> Examination::inaccuracies(const Case& c, const Answer& answer, const char* check,
                                              bool& doubtful, std::vector<VerdictRow>* rows) {
  const AccuracyClass declared = subject_.declaration().accuracy_class;
  const auto judged = [&](const OracleAnswer& oracle) {
    return judge(oracle.budgets, oracle.truth, answer.result, declared, answer.loss_format);
  };
  const OracleAnswer* oracle = certified_ && &c == &case_ ? &*certified_ : &oracle_.answer(c);
  Verdict verdict = judged(*oracle);
  if (rows) *rows = verdict.rows;

  std::optional<OracleAnswer> certified;
  bool asked = false;
  std::vector<Failed> failed;
  for (std::size_t i = 0; i < verdict.rows.size(); ++i) {
    if (verdict.rows[i].pass) continue;
    const auto value = [&] {
      return worst_value(verdict.rows[i], oracle->truth, answer.result, oracle->budgets.of(declared));
    };
    const JudgedValue worst = value();
    // fp32 cannot see an infinity that rests on probabilities that it does not have.
    if (std::isinf(worst.truth) && std::isfinite(worst.got) && declared != AccuracyClass::float64 &&
        infinite_by_underflow(c, verdict.rows[i], oracle->truth.result.token_loss))
      continue;
    if (!oracle->truth.certified &&
        may_be_the_oracles(verdict.rows[i], worst,
                           own_bound(verdict.rows[i], oracle->budgets.truth, oracle->budgets.of(declared)))) {
      if (!asked) certified = oracle_.certified(c);
      asked = true;
      if (!certified) {
        doubtful = true;
        continue;
      }
      // Once more from the start, with the better oracle.
      oracle = &*certified;
      verdict = judged(*oracle);
      failed.clear();
      i = static_cast<std::size_t>(-1);
      continue;
    }
    const VerdictRow& row = verdict.rows[i];
    if (std::any_of(failed.begin(), failed.end(),
                    [&](const Failed& f) { return f.kind.quantity == row.quantity; }))
      continue;  // another measure of the same numbers
    Failed f;
    f.kind = {check, row.quantity, manner_of(worst)};
    f.observed = row.error;
    f.allowed = row.budget;
    f.text = sentence(row, worst, declared);
    f.value = worst;
    failed.push_back(std::move(f));
  }
  if (!failed.empty()) doubtful = false;
  std::stable_sort(failed.begin(), failed.end(), [](const Failed& a, const Failed& b) {
    return rank_of_quantity(a.kind.quantity) < rank_of_quantity(b.kind.quantity);
  });
  return failed;
}

CheckOutcome Examination::accuracy() {
  CheckOutcome outcome;
  outcome.failed =
      inaccuracies(case_, std::get<Answer>(first()), check_name::accuracy, outcome.doubtful, &rows_);
  for (const VerdictRow& row : rows_) {
    if (!row.judged || row.ratio * outcome.allowed < outcome.observed) continue;
    outcome.observed = row.error;
    outcome.allowed = row.budget;
  }
  return outcome;
}

}  // namespace fljsd
