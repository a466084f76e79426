// SPDX-License-Identifier: Apache-2.0
#include "verify/audit/svg_axis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

namespace fljsd {

LogAxis::LogAxis(std::span<const double> values, int most) {
  bool any = false;
  for (const double value : values) {
    if (!std::isfinite(value) || !(value > 0)) continue;
    const int below = static_cast<int>(std::floor(std::log10(value)));
    // A power of ten needs no decade above it.
    const int above = static_cast<int>(std::ceil(std::log10(value)));
    low_ = any ? std::min(low_, below) : below;
    high_ = any ? std::max(high_, above) : above;
    any = true;
  }
  if (high_ == low_) ++high_;
  low_ = std::max(low_, high_ - most);
}

LogAxis::LogAxis(int low, int high) : low_(low), high_(high) {
  if (!(low < high)) throw std::logic_error("An axis needs at least one decade.");
}

double LogAxis::place(double value) const {
  if (!std::isfinite(value)) return not_finite_place;
  if (!(value > 0)) return zero_place;
  const double share = (std::log10(value) - low_) / (high_ - low_);
  return left + (right - left) * std::clamp(share, 0.0, 1.0);
}

bool LogAxis::on_scale(double value) const {
  if (!std::isfinite(value) || !(value > 0)) return false;
  const double decade = std::log10(value);
  return low_ <= decade && decade <= high_;
}

std::vector<int> LogAxis::ticks(int most) const {
  constexpr std::array spacings = {1, 2, 3, 5, 10, 20, 50, 100};
  std::vector<int> chosen;
  for (const int spacing : spacings) {
    chosen.clear();
    for (int e = low_; e <= high_; ++e)
      if (e % spacing == 0) chosen.push_back(e);
    if (static_cast<int>(chosen.size()) <= most) break;
  }
  return chosen;
}

std::string power_of_ten(int exponent) {
  if (exponent == 0) return "1";
  if (exponent == 1) return "10";
  constexpr std::array digits = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = exponent < 0 ? "10⁻" : "10";
  for (const char c : std::to_string(std::abs(exponent))) text += digits[static_cast<std::size_t>(c - '0')];
  return text;
}

}  // namespace fljsd
