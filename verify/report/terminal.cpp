// SPDX-License-Identifier: Apache-2.0
#include "verify/report/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace fljsd {
namespace {

// An environment variable, empty when unset.
std::string_view environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

bool colours_wanted() {
  static const bool wanted =
      stdout_is_terminal() && environment("NO_COLOR").empty() && environment("TERM") != "dumb";
  return wanted;
}

const char* escape_sequence(Style style) {
  switch (style) {
    case Style::plain: return "";
    case Style::bold: return "\033[1m";
    case Style::dim: return "\033[2m";
    case Style::good: return "\033[32m";
    case Style::bad: return "\033[1;31m";
    case Style::warning: return "\033[33m";
  }
  return "";
}

}  // namespace

bool stdout_is_terminal() {
  static const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  return is_terminal;
}

bool stderr_is_terminal() {
  static const bool is_terminal = isatty(STDERR_FILENO) == 1;
  return is_terminal;
}

int terminal_width() {
  winsize size{};
  if (!stdout_is_terminal() || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return std::max<int>(40, size.ws_col);
}

bool utf8_output() {
  // The first of the three that is set decides, as POSIX has it.
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = environment(variable);
    if (value.empty()) continue;
    return value.find("UTF-8") != value.npos || value.find("utf8") != value.npos ||
           value.find("UTF8") != value.npos || value.find("utf-8") != value.npos;
  }
  return false;
}

std::string styled(Style style, std::string_view text) {
  if (style == Style::plain || !colours_wanted()) return std::string(text);
  return escape_sequence(style) + std::string(text) + "\033[0m";
}

int display_width(std::string_view text) {
  // Bytes 10xxxxxx continue a code point.
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string wrapped(std::string_view text, int width, int indent) {
  std::string out;
  int column = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    const int length = display_width(word);
    if (column > 0 && column + 1 + length > width) {
      out += '\n' + std::string(static_cast<std::size_t>(indent), ' ');
      column = 0;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += length;
  }
  return out;
}

}  // namespace fljsd
