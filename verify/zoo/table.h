// SPDX-License-Identifier: Apache-2.0
// The tables of docs/zoo.md: one row for each fault.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "verify/zoo/trial.h"

namespace fljsd::zoo {

struct TableRow {
  std::string fault, note;
  std::string check;       // that convicted it, with the quantity and the manner
  Cases median_cases = 0;  // evaluations until then, over trial_seeds
  Cases most_cases = 0;
  Recipe recipe;           // the smallest shrunk counterexample of the trials
  bool replayable = true;  // false: the recipe alone does not fail, because the fault depends on history
};

// Tries the fault with every one of trial_seeds. Throws std::runtime_error, one sentence, if it is acquitted.
TableRow try_fault(const Fault& fault);

// Markdown, a table for each place; rows in the order of faults().
std::string render(const std::vector<TableRow>& rows);
// The rows in what render() made, notes and recipes included. Throws std::runtime_error, one sentence, for a
// row that is not one.
std::vector<TableRow> parse_table(std::string_view markdown);

}  // namespace fljsd::zoo
