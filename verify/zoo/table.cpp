// SPDX-License-Identifier: Apache-2.0
#include "verify/zoo/table.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include <fmt/format.h>

namespace fljsd::zoo {
namespace {

constexpr std::string_view header =
    "| fault | what it is | convicted by | evaluations | tokens, hidden, vocab | counterexample |\n"
    "|---|---|---|---|---|---|\n";
constexpr std::string_view not_replayable = "depends on what ran before";

Index teacher_hidden(const Recipe& recipe) {
  return recipe.spec.teacher_hidden != 0 ? recipe.spec.teacher_hidden : recipe.spec.student_hidden;
}

Index volume(const Recipe& recipe) {
  return recipe.spec.tokens + recipe.spec.vocab + recipe.spec.student_hidden + teacher_hidden(recipe);
}

std::string sizes(const Recipe& recipe) {
  const CaseSpec& spec = recipe.spec;
  const std::string hidden = teacher_hidden(recipe) == spec.student_hidden
                                 ? fmt::format("{}", spec.student_hidden)
                                 : fmt::format("{}/{}", spec.student_hidden, teacher_hidden(recipe));
  return fmt::format("{}, {}, {}", spec.tokens, hidden, spec.vocab);
}

std::string render(const TableRow& row) {
  return fmt::format("| `{}` | {} | {} | {}, at most {} | {} | {} |\n", row.fault, row.note, row.check,
                     row.median_cases, row.most_cases, row.replayable ? sizes(row.recipe) : "",
                     row.replayable ? "`" + to_text(row.recipe) + "`" : std::string(not_replayable));
}

[[noreturn]] void refuse(std::string_view line) {
  throw std::runtime_error(fmt::format("'{}' is not a row of the table of faults.", line));
}

// "| a | b |" into a, b.
std::vector<std::string> cells(std::string_view line) {
  std::vector<std::string> found;
  for (std::size_t begin = 2; begin < line.size();) {
    const std::size_t end = std::min(line.find(" |", begin), line.size());
    found.emplace_back(line.substr(begin, end - begin));
    begin = end + 3;
  }
  return found;
}

std::string without_ticks(const std::string& cell) {
  return cell.size() >= 2 && cell.front() == '`' && cell.back() == '`' ? cell.substr(1, cell.size() - 2)
                                                                       : cell;
}

}  // namespace

TableRow try_fault(const Fault& fault) {
  TableRow row{std::string(fault.about.name), std::string(fault.about.note), "", 0, 0, {}, false};
  std::vector<Cases> cases;
  std::optional<Finding> smallest;
  for (const std::uint64_t seed : trial_seeds) {
    const std::optional<Finding> finding = put_on_trial(fault, seed);
    if (!finding)
      throw std::runtime_error(fmt::format("{} is acquitted after {} evaluations with seed {}.",
                                           fault.candidate_name(), conviction_limit, seed));
    cases.push_back(finding->cases_until);
    const auto better = [](const Finding& a, const Finding& b) {
      return a.reproduced != b.reproduced ? a.reproduced : volume(a.recipe) < volume(b.recipe);
    };
    if (!smallest || better(*finding, *smallest)) smallest = finding;
  }
  std::sort(cases.begin(), cases.end());
  row.median_cases = cases[cases.size() / 2];
  row.most_cases = cases.back();
  row.check = smallest->kind.text();
  row.recipe = smallest->recipe;
  for (const Finding& again :
       judge_recipe(*make(fault), row.recipe))  // by a candidate that has seen nothing else
    row.replayable = row.replayable || again.kind == smallest->kind;
  return row;
}

std::string render(const std::vector<TableRow>& rows) {
  std::string text, place;
  for (const TableRow& row : rows) {
    const Fault& fault = find_fault(row.fault);
    if (fault.place != place) {
      place = fault.place;
      text += fmt::format("{}### {}\n\n{}", text.empty() ? "" : "\n", place, header);
    }
    text += render(row);
  }
  return text;
}

std::vector<TableRow> parse_table(std::string_view markdown) {
  std::vector<TableRow> rows;
  for (std::size_t begin = 0; begin < markdown.size();) {
    const std::size_t end = std::min(markdown.find('\n', begin), markdown.size());
    const std::string_view line = markdown.substr(begin, end - begin);
    begin = end + 1;
    if (!line.starts_with("| `")) continue;
    const std::vector<std::string> cell = cells(line);
    if (cell.size() != 6) refuse(line);
    TableRow row{without_ticks(cell[0]), cell[1], cell[2], 0, 0, {}, cell[5] != not_replayable};
    if (std::from_chars(cell[3].data(), cell[3].data() + cell[3].size(), row.median_cases).ec != std::errc())
      refuse(line);
    const std::string_view most = std::string_view(cell[3]).substr(cell[3].rfind(' ') + 1);
    if (std::from_chars(most.data(), most.data() + most.size(), row.most_cases).ec != std::errc())
      refuse(line);
    if (row.replayable) row.recipe = parse_recipe(without_ticks(cell[5]));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace fljsd::zoo
