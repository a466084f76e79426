// SPDX-License-Identifier: Apache-2.0
// Bars of text on a logarithmic scale.
#pragma once

#include <span>
#include <string>

namespace fljsd {

// Bars of at most `columns` characters whose lengths are proportional to log(value / low).
class LogScale {
 public:
  // A scale of whole decades that holds the positive finite values, twelve decades at most (from the largest
  // down).
  LogScale(std::span<const double> values, int columns);

  // Empty for a value at or below the scale's lower end, full for one at the upper end, infinite or NaN; else
  // at least one character.
  std::string bar(double value) const;
  // "1e-6 … 1e+2, log"
  std::string caption() const;

 private:
  int low_ = 0, high_ = 1;  // decimal exponents
  int columns_;
};

}  // namespace fljsd
