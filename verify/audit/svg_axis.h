// SPDX-License-Identifier: Apache-2.0
// A horizontal logarithmic axis of whole decades.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace fljsd {

// Places are percentages of the drawing's width. Left of the scale is a gutter for 0 and what is too small,
// right of it one for NaN and infinity.
class LogAxis {
 public:
  // Decades that hold the positive finite values: at most `most` of them, the largest. No values: one decade
  // below 1.
  explicit LogAxis(std::span<const double> values, int most = 24);
  // From 10^low to 10^high. Throws std::logic_error unless low < high.
  LogAxis(int low, int high);

  int low() const { return low_; }
  int high() const { return high_; }

  // Where errors of 0 and errors that are NaN or infinite are drawn.
  static constexpr double zero_place = 2, not_finite_place = 96;
  // The ends of the scale.
  static constexpr double left = 5, right = 87;

  // On the scale; values beyond its ends at its ends; 0, and NaN or infinity, at their own places.
  double place(double value) const;

  // Whether the value is drawn where it is, neither in a gutter nor moved to an end.
  bool on_scale(double value) const;

  // Decimal exponents of the lines with labels: equally spaced, multiples of their spacing, at most `most`.
  std::vector<int> ticks(int most) const;

 private:
  int low_ = -1, high_ = 0;
};

// "10⁻⁵"; "1" and "10" for exponents 0 and 1.
std::string power_of_ten(int exponent);

}  // namespace fljsd
