// SPDX-License-Identifier: Apache-2.0
#include "verify/reproduce/published.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>

namespace fljsd {
namespace {

// The fields of one line; quoted ones may hold commas, and "" for a quote (RFC 4180).
std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"') {
      if (quoted && i + 1 < line.size() && line[i + 1] == '"') {
        fields.back() += '"';
        ++i;
      } else {
        quoted = !quoted;
      }
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else if (c != '\r') {
      fields.back() += c;
    }
  }
  return fields;
}

// NaN for a field that is empty: a quantile that is not known.
double quantile(const std::string& text) {
  return text.empty() ? std::numeric_limits<double>::quiet_NaN() : std::stod(text);
}

}  // namespace

std::vector<BenchmarkDatum> parse_benchmark_csv(const std::string& text, const std::string& origin) {
  std::istringstream lines(text);
  std::string line;
  std::map<std::string, std::size_t> column;
  if (std::getline(lines, line)) {
    const std::vector<std::string> names = split(line);
    for (std::size_t i = 0; i < names.size(); ++i) column[names[i]] = i;
  }
  for (const char* needed :
       {"kernel_name", "kernel_provider", "kernel_operation_mode", "metric_name", "metric_unit", "x_name",
        "x_value", "y_value_50", "y_value_20", "y_value_80", "gpu_name", "timestamp", "liger_version"}) {
    if (!column.contains(needed))
      throw std::invalid_argument(fmt::format("{}: there is no column {}.", origin, needed));
  }
  std::vector<BenchmarkDatum> data;
  for (int number = 2; std::getline(lines, line); ++number) {
    if (line.empty()) continue;
    const std::vector<std::string> fields = split(line);
    if (fields.size() != column.size())
      throw std::invalid_argument(
          fmt::format("{}: line {} has {} fields, not {}.", origin, number, fields.size(), column.size()));
    const auto field = [&](const char* name) { return fields[column.at(name)]; };
    if (field("kernel_name") != "fused_linear_jsd" || field("x_name") != "BT") continue;
    try {
      data.push_back({field("kernel_name"), field("kernel_provider"), field("kernel_operation_mode"),
                      field("metric_name"), field("metric_unit"), std::stoll(field("x_value")),
                      std::stod(field("y_value_50")), quantile(field("y_value_20")),
                      quantile(field("y_value_80")), field("gpu_name"), field("timestamp"),
                      field("liger_version")});
    } catch (const std::logic_error&) {  // what stoll and stod throw
      throw std::invalid_argument(
          fmt::format("{}: line {} has a value that is not a number.", origin, number));
    }
  }
  return data;
}

std::filesystem::path data_folder() {
  const char* given = std::getenv("FLJSD_DATA");
  const std::filesystem::path folder = given != nullptr ? given : FLJSD_SOURCE_DIR "/data";
  if (std::filesystem::is_directory(folder / "published")) return folder;
  throw std::invalid_argument("the data folder " + folder.string() +
                              " is not there; FLJSD_DATA can name the data/ folder of a checkout.");
}

std::string read_data_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::invalid_argument(path.string() + " cannot be read.");
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace fljsd
