// SPDX-License-Identifier: Apache-2.0
// The right answers of a campaign's cases, each computed once, with what the candidate's class may be off by.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "verify/judge/budget.h"

namespace fljsd {

struct OracleAnswer {
  Truth truth;
  Budgets budgets;
};

class Oracle {
 public:
  // `grad`: gradients are wanted as well.
  Oracle(AccuracyClass accuracy_class, bool grad) : accuracy_class_(accuracy_class), grad_(grad) {}

  AccuracyClass accuracy_class() const { return accuracy_class_; }

  // From the float64 tier, with its bound in the budgets. The reference is valid until forget().
  const OracleAnswer& answer(const Case& c);
  // From the certified tier. Nothing if the case is too large for it, or a value that would be judged is not
  // settled.
  std::optional<OracleAnswer> certified(const Case& c);

  // What `class` may be off by, the truth's own error included.
  const ErrorBound& allowed(const Case& c) { return answer(c).budgets.of(accuracy_class_); }

  void forget() { answers_.clear(); }

 private:
  Wanted wanted(const Case& c) const;

  AccuracyClass accuracy_class_;
  bool grad_;
  std::unordered_map<std::uint64_t, std::unique_ptr<const OracleAnswer>> answers_;
};

}  // namespace fljsd
