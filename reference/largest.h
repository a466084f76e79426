// SPDX-License-Identifier: Apache-2.0
// The largest of numbers among which NaN may be.
#pragma once

namespace fljsd {

// The larger of two numbers; NaN if either is. std::max(a, b) forgets a NaN in b, and !(b <= a) ? b : a
// forgets one in a: a maximum that is built up number by number would lose NaN at the next number.
constexpr double larger_or_nan(double a, double b) {
  return a > b || a != a ? a : b;
}

}  // namespace fljsd
