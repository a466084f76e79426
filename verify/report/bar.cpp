// SPDX-License-Identifier: Apache-2.0
#include "verify/report/bar.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "verify/report/terminal.h"

namespace fljsd {
namespace {

constexpr int most_decades = 9;

}  // namespace

LogScale::LogScale(std::span<const double> values, int columns) : columns_(columns) {
  bool any = false;
  for (const double value : values) {
    if (!std::isfinite(value) || value <= 0) continue;
    const int below = static_cast<int>(std::floor(std::log10(value)));
    low_ = any ? std::min(low_, below) : below;
    high_ = any ? std::max(high_, below + 1) : below + 1;
    any = true;
  }
  low_ = std::max(low_, high_ - most_decades);
}

std::string LogScale::bar(double value) const {
  if (value <= 0) return "";
  const double decades = std::isfinite(value) ? std::log10(value) - low_ : high_ - low_;
  if (decades <= 0) return "";
  const double share = std::min(1.0, decades / (high_ - low_));
  const int length = std::max(1, static_cast<int>(std::lround(share * columns_)));
  std::string bar;
  for (int i = 0; i < length; ++i) bar += utf8_output() ? "█" : "#";
  return bar;
}

std::string LogScale::caption() const {
  return fmt::format("1e{} {} 1e{}, log", low_, utf8_output() ? "…" : "to", high_);
}

}  // namespace fljsd
