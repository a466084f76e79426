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
std::errc read_as(const std::string& text, Number& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop != end ? std::errc::invalid_argument : error;
}

}  // namespace

CLI::Validator whole_number(long long least) {
  return CLI::Validator(
      [least](std::string& text) -> std::string {
        long long value = 0;
        const std::errc error = read_as(text, value);
        if (error == std::errc() && value >= least) return "";
        // Who types a number that 64 bits do not hold is told where they end.
        using Limits = std::numeric_limits<long long>;
        const std::string range = error == std::errc::result_out_of_range || least == Limits::min()
                                      ? fmt::format("from {} to {}", least, Limits::max())
                                      : fmt::format("of at least {}", least);
        return fmt::format("takes a whole number {}, not '{}'.", range, text);
      },
      "");
}

CLI::Validator real_number(double least, double most) {
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        double value = 0;
        if (read_as(text, value) == std::errc() && value >= least && value <= most) return "";
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
