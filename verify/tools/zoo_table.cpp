// SPDX-License-Identifier: Apache-2.0
// zoo_table FILE [NAME...]: tries every fault of the zoo, or those named, and writes the tables between the
// markers of FILE, which is docs/zoo.md. Rows of faults that were not tried stay.
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>

#include <fmt/format.h>

#include "verify/report/output_file.h"
#include "verify/zoo/table.h"

namespace {

constexpr std::string_view begin_marker = "<!-- zoo_table: begin -->\n",
                           end_marker = "<!-- zoo_table: end -->";

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path + ".");
  return {std::istreambuf_iterator<char>(in), {}};
}

void run(const std::string& path, const std::vector<std::string>& names) {
  using namespace fljsd::zoo;
  std::string document = read(path);
  const std::size_t begin = document.find(begin_marker), end = document.find(end_marker);
  if (begin == std::string::npos || end == std::string::npos || end < begin)
    throw std::runtime_error(path + " lacks the two markers of the table.");
  const std::size_t first = begin + begin_marker.size();

  std::map<std::string, TableRow, std::less<>> rows;
  if (!names.empty())
    for (TableRow& row : parse_table(document)) rows.emplace(row.fault, row);
  for (const std::string& name : names) rows.erase(name), find_fault(name);
  std::vector<TableRow> table;
  std::string acquitted;
  for (const Fault& fault : faults()) {
    auto row = rows.find(fault.about.name);
    if (row == rows.end()) {
      try {
        row = rows.emplace(fault.about.name, try_fault(fault)).first;
      } catch (const std::runtime_error& error) {
        fmt::print(stderr, "{}\n", error.what());
        acquitted += fmt::format(" {}", fault.about.name);
        continue;
      }
      fmt::print(stderr, "{:33} {:4} {:4}  {}: {}\n", row->first, row->second.median_cases,
                 row->second.most_cases, row->second.check, to_text(row->second.recipe));
    }
    table.push_back(row->second);
  }
  if (!acquitted.empty())
    throw std::runtime_error("acquitted:" + acquitted + ". " + path + " stays as it is.");
  document.replace(first, end - first, "\n" + render(table) + "\n");
  fljsd::write_text(path, document);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw std::runtime_error("usage: zoo_table docs/zoo.md [NAME...]");
    run(argv[1], {argv + 2, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "zoo_table: {}\n", error.what());
    return 2;
  }
}
