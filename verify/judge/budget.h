// SPDX-License-Identifier: Apache-2.0
// What each accuracy class may be off by: one table of contracts, and the budgets that follow from it.
//
// A budget is an a-priori error bound (reference/error_bound.h) of the arithmetic that the class allows, for
// the case at hand, plus the bound of the truth's own error. So a correct implementation of the class is
// within it whatever its order of summation, and docs/error_analysis.md derives every term.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "reference/accuracy_class.h"
#include "reference/error_bound.h"
#include "verify/cases/case.h"

namespace fljsd {

// One row of the table.
struct ClassContract {
  AccuracyClass accuracy_class;
  const char* promise;         // one sentence
  ArithmeticModel arithmetic;  // lambda still 0: filled in for the number of sums of the case
  bool statistical;            // whether sums are held to the statistical bound
};
std::span<const ClassContract> contracts();

// The probability that a correct implementation breaks a statistical budget somewhere in one case, if its
// roundings are mean independent.
inline constexpr double budget_failure_probability = 1e-9;

// What a result is compared with.
struct Truth {
  Result result;           // of linear_jsd<double>, or the doubles nearest to certified values
  bool certified = false;  // each value is the double nearest to the exact one
};

struct Budgets {
  // Indexed by the numeric value of AccuracyClass.
  std::vector<ErrorBound> allowed;     // what the verdict compares with
  std::vector<ErrorBound> worst_case;  // the same without statistics: gamma_n in place of lambda·sqrt(n)·u
  ErrorBound truth;                    // of the truth's own error, included in the above
  double lambda = 0;                   // of the statistical bounds
  std::optional<AccuracyClass> only;   // the one class that is filled in; absent: all are
  // Why gradients cannot be judged (infinite input, or an infinite loss); absent if they can.
  std::optional<std::string> gradients_not_judged;

  const ErrorBound& of(AccuracyClass c) const { return allowed[static_cast<std::size_t>(c)]; }
  const ErrorBound& worst_case_of(AccuracyClass c) const { return worst_case[static_cast<std::size_t>(c)]; }
};

// Budgets of every class for one case: about as costly as the truth's losses. `wanted` is what the truth was
// computed with. Compute them once per case and judge many results. With `only`, the other classes' entries
// stay empty, and judge() can be asked about that class alone: for who judges thousands of small cases.
Budgets make_budgets(const Case& c, const Truth& truth, const Wanted& wanted,
                     std::optional<AccuracyClass> only = std::nullopt);

}  // namespace fljsd
