// SPDX-License-Identifier: Apache-2.0
#include "verify/report/table.h"

#include <algorithm>
#include <stdexcept>

namespace fljsd {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == '\n')
      lines.emplace_back();
    else
      lines.back() += c;
  }
  return lines;
}

std::string spaces(int count) {
  return std::string(static_cast<std::size_t>(std::max(0, count)), ' ');
}

}  // namespace

Table::Table(std::vector<std::string> headings, std::vector<std::size_t> left)
    : headings_(std::move(headings)), flush_left_(headings_.size()) {
  if (!headings_.empty()) flush_left_[0] = true;
  for (const std::size_t column : left) flush_left_.at(column) = true;
}

void Table::add(std::vector<Cell> row) {
  if (row.size() != headings_.size()) throw std::logic_error("A table row has the wrong number of cells.");
  rows_.push_back(std::move(row));
}

std::string Table::text(int indent, int total_width) const {
  const std::size_t columns = headings_.size();
  std::vector<std::vector<std::string>> headings;
  std::vector<int> width(columns, 0);
  std::size_t heading_lines = 0;
  for (std::size_t c = 0; c < columns; ++c) {
    headings.push_back(lines_of(headings_[c]));
    heading_lines = std::max(heading_lines, headings[c].size());
    for (const std::string& line : headings[c]) width[c] = std::max(width[c], display_width(line));
    for (const auto& row : rows_) width[c] = std::max(width[c], display_width(row[c].text));
  }

  int total = indent + 2 * static_cast<int>(columns) - 2;
  for (const int w : width) total += w;
  const std::string gap = spaces(total <= total_width ? 2 : 1);

  std::string out;
  const auto put_line = [&](const auto& cell_at) {
    std::string line = spaces(indent);
    std::string pending;  // spaces that are written only when something follows them
    for (std::size_t c = 0; c < columns; ++c) {
      const Cell cell = cell_at(c);
      const std::string padding = spaces(width[c] - display_width(cell.text));
      if (c > 0) pending += gap;
      if (!flush_left_[c]) pending += padding;
      if (!cell.text.empty()) {
        line += pending + styled(cell.style, cell.text);
        pending.clear();
      }
      if (flush_left_[c]) pending += padding;
    }
    out += line + '\n';
  };

  for (std::size_t l = 0; l < heading_lines; ++l) {
    put_line([&](std::size_t c) {
      // Headings of one line stand on the last line.
      const std::size_t above = heading_lines - headings[c].size();
      return l < above ? Cell("") : Cell(headings[c][l - above], Style::bold);
    });
  }
  for (const auto& row : rows_) put_line([&](std::size_t c) { return row[c]; });
  return out;
}

}  // namespace fljsd
