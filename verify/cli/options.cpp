// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "verify/cli/command.h"
#include "verify/report/suggest.h"

namespace fljsd {
namespace {

template <class Number>
bool reads_as(const std::string& text, Number& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

}  // namespace

CLI::Validator whole_number(long long least) {
  return CLI::Validator(
      [least](std::string& text) -> std::string {
        long long value = 0;
        if (reads_as(text, value) && value >= least) return "";
        return fmt::format("takes a whole number of at least {}, not '{}'.", least, text);
      },
      "");
}

CLI::Validator real_number(double least, double most) {
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        double value = 0;
        if (reads_as(text, value) && value >= least && value <= most) return "";
        const std::string range = std::isinf(most) ? fmt::format("of at least {}", least)
                                                   : fmt::format("from {} to {}", least, most);
        return fmt::format("takes a number {}, not '{}'.", range, text);
      },
      "");
}

CLI::Validator one_of(const std::string& kind, const std::vector<std::string>& names) {
  return CLI::Validator(
      [kind, names](std::string& text) -> std::string {
        for (const std::string& name : names)
          if (name == text) return "";
        return unknown_name(kind, text, names);
      },
      "");
}

}  // namespace fljsd
