// SPDX-License-Identifier: Apache-2.0
// A benchmark for people and for plotting tools. JSON: record.h.
#pragma once

#include <string>

#include "verify/bench/record.h"

namespace fljsd {

// Tables, one for each family of inputs and pass.
std::string bench_text(const BenchRecord& record, int width);

// The columns of Liger-Kernel's benchmark data, so that its plotting tools read it: `speed` in ms with the
// 50, 20 and 80 % quantiles, `workspace` in MiB (Liger writes MB for those).
std::string bench_csv(const BenchRecord& record);

// A row's times in one line, while a benchmark runs.
std::string bench_line(const BenchRow& row);

}  // namespace fljsd
