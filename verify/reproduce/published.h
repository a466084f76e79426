// SPDX-License-Identifier: Apache-2.0
// Benchmark data in the columns of Liger-Kernel's, and where this project keeps such files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "reference/problem.h"

namespace fljsd {

struct BenchmarkDatum {
  std::string kernel, provider, mode;  // "fused_linear_jsd"; "torch", "liger"; "forward", "full"
  std::string metric, unit;            // "speed" in ms, "memory" in MB (which is MiB)
  Index tokens = 0;                    // x_value where x_name is BT
  double median = 0, low = 0, high = 0;
  std::string gpu, timestamp, version;
};

// Rows whose kernel is fused_linear_jsd and whose x_name is BT. Throws std::invalid_argument, one sentence
// that begins with `origin`, for a file that does not have the columns.
std::vector<BenchmarkDatum> parse_benchmark_csv(const std::string& text, const std::string& origin);

// The repository's data/ folder: the environment variable FLJSD_DATA, or where it was when this program was
// built. Throws std::invalid_argument, one sentence, when it is not there.
std::filesystem::path data_folder();
std::string read_data_file(const std::filesystem::path& path);

}  // namespace fljsd
