// SPDX-License-Identifier: Apache-2.0
#include "verify/audit/text_parts.h"

#include <algorithm>

#include <fmt/format.h>

#include "verify/report/number.h"

namespace fljsd {
namespace {

// "torch-eager-bf16" on several lines, so that a column of numbers need not be wider than they are.
std::string stacked(const std::string& name) {
  constexpr std::size_t most = 6;
  std::string out;
  std::size_t line = 0;
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('-', begin), name.size());
    const std::size_t length = end - begin;
    if (begin > 0) out += line + 1 + length > most ? '\n' : '-';
    line = begin > 0 && line + 1 + length <= most ? line + 1 + length : length;
    out += name.substr(begin, length);
    begin = end + 1;
  }
  return out;
}

}  // namespace

std::string section(const std::string& title) {
  return fmt::format("\n{}\n", styled(Style::bold, title));
}

std::string paragraph(const std::string& text, int width) {
  return "  " + wrapped(text, width - 2, 2) + '\n';
}

std::vector<std::string> candidate_headings(const std::vector<std::string>& candidates,
                                            const std::string& first) {
  std::vector<std::string> headings{first};
  for (const std::string& candidate : candidates) headings.push_back(stacked(candidate));
  return headings;
}

Style error_style(double relative_error) {
  return !(relative_error < 1) ? Style::bad : !(relative_error < 0.01) ? Style::warning : Style::plain;
}

Cell error_cell(const std::optional<double>& relative_error) {
  if (!relative_error) return {"-", Style::dim};
  return {short_number(*relative_error, 2), error_style(*relative_error)};
}

Cell plain_cell(const std::optional<double>& error) {
  return error ? Cell(short_number(*error, 2)) : Cell("-", Style::dim);
}

}  // namespace fljsd
