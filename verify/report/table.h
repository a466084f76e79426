// SPDX-License-Identifier: Apache-2.0
// Tables of text for the terminal.
#pragma once

#include <string>
#include <vector>

#include "verify/report/terminal.h"

namespace fljsd {

struct Cell {
  Cell(std::string t, Style s = Style::plain) : text(std::move(t)), style(s) {}
  Cell(const char* t) : text(t) {}

  std::string text;
  Style style = Style::plain;
};

// The first column is set flush left, the others flush right unless they are named in `left`.
class Table {
 public:
  // A heading may hold newlines: it then takes several lines.
  explicit Table(std::vector<std::string> headings, std::vector<std::size_t> left = {});

  // Throws std::logic_error unless there are as many cells as headings.
  void add(std::vector<Cell> row);

  // Every line ends with a newline and starts with `indent` spaces. No trailing spaces. Columns are two
  // spaces apart, or one if the table would be wider than `width` otherwise.
  std::string text(int indent = 2, int width = terminal_width()) const;

 private:
  std::vector<std::string> headings_;
  std::vector<bool> flush_left_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace fljsd
