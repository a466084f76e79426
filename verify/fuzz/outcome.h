// SPDX-License-Identifier: Apache-2.0
// The outcomes of checks, put together.
#pragma once

#include <string>

#include "verify/fuzz/examine.h"

namespace fljsd {

CheckOutcome not_applicable_because(std::string reason);
CheckOutcome failed_because(Failed failed);

// The candidate has no answer where the check needs one.
Failed no_answer(const std::string& check, const Failure& failure);

// As it stands in a finding, which ends its sentences itself; the sign of a NaN is nobody's affair.
std::string without_period(std::string text);

}  // namespace fljsd
