// SPDX-License-Identifier: Apache-2.0
#include "verify/fuzz/outcome.h"

#include <limits>

#include "verify/candidates/candidate.h"

namespace fljsd {

CheckOutcome not_applicable_because(std::string reason) {
  CheckOutcome outcome;
  outcome.applicable = false;
  outcome.reason = std::move(reason);
  return outcome;
}

CheckOutcome failed_because(Failed failed) {
  CheckOutcome outcome;
  outcome.failed.push_back(std::move(failed));
  return outcome;
}

std::string without_period(std::string text) {
  for (std::size_t at; (at = text.find("-nan")) != std::string::npos;) text.erase(at, 1);
  if (!text.empty() && text.back() == '.') text.pop_back();
  return text;
}

Failed no_answer(const std::string& check, const Failure& failure) {
  return {{check, "", name(failure.kind)},
          std::numeric_limits<double>::infinity(),
          0,
          without_period(failure.text),
          std::nullopt,
          failure.diagnostics};
}

}  // namespace fljsd
