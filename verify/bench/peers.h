// SPDX-License-Identifier: Apache-2.0
// Published implementations on the tensors of a benchmark: verify/bench/peers/time_peers.py, run as a
// process.
#pragma once

#include <string>
#include <vector>

#include "verify/bench/bench.h"

namespace fljsd {

// Rows of PyTorch, torch.compile and Liger-Kernel, as far as they are installed, on uniform inputs; ratios
// are to the plain products as PyTorch runs them (variant torch-matmul) in the same round of the same
// process. device_bytes is the peak that PyTorch reports. Throws std::runtime_error, one sentence, when the
// script fails; what it says goes to standard error.
std::vector<BenchRow> run_peers(const BenchRequest& request);

// The inverse of the script's --json.
std::vector<BenchRow> parse_peers(const std::string& text);

}  // namespace fljsd
