// SPDX-License-Identifier: Apache-2.0
#include "verify/report/number.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace fljsd {
namespace {

std::string non_finite(double x) {
  return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}

// Two digits and an exponent without leading zeros: "1.4e-5".
std::string scientific(double x) {
  const std::string text = fmt::format("{:.1e}", x);
  const std::size_t e = text.find('e');
  return fmt::format("{}e{}", text.substr(0, e), std::stoi(text.substr(e + 1)));
}

}  // namespace

nlohmann::ordered_json json_number(double x) {
  if (!std::isfinite(x)) return non_finite(x);
  return x;
}

double number_from_json(const nlohmann::ordered_json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  throw std::invalid_argument("A number, \"nan\", \"inf\" or \"-inf\" was expected in JSON, not " +
                              value.dump() + ".");
}

std::string hex_float(double x) {
  if (!std::isfinite(x)) return non_finite(x);
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%a", x);
  return buffer;
}

std::string short_number(double x, int digits) {
  if (!std::isfinite(x)) return non_finite(x);
  const double magnitude = std::abs(x);
  if (x == 0) return "0";
  if (magnitude < 1e-3 || magnitude >= 9999.5) return scientific(x);
  if (magnitude >= std::pow(10, digits - 1)) return fmt::format("{:.0f}", x);
  std::string text = fmt::format("{:#.{}g}", x, digits);
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string percent(double share) {
  const double x = 100 * share;
  if (!std::isfinite(x)) return non_finite(x);
  const double magnitude = std::abs(x);
  if (x == 0) return "0 %";
  if (magnitude < 1e-3 || magnitude >= 99950) return scientific(x) + " %";
  if (magnitude >= 9.95) return fmt::format("{:.0f} %", x);
  return fmt::format("{:#.2g} %", x);
}

std::string byte_count(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 999.5 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, bytes < 9.95 && unit > 0 ? 1 : 0, units[unit]);
}

std::string duration(double seconds) {
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<long>(std::llround(seconds));
  if (whole < 120) return fmt::format("{} s", whole);
  return fmt::format("{} min {} s", whole / 60, whole % 60);
}

}  // namespace fljsd
