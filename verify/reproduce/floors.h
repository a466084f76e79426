// SPDX-License-Identifier: Apache-2.0
// How fast the workload can be at most on a GPU: the times that its arithmetic and its bytes take alone.
//
// tokens T, vocab V, hidden H, inputs of 2 bytes. A matrix product of [T, H] by [H, V] is 2·T·V·H floating
// point operations. Forward there are two, with the gradients of student input and weight four:
//
//   arithmetic floor = (forward: 4·T·V·H, full: 8·T·V·H) / rate of the matrix units
//   bandwidth floor  = bytes / memory bandwidth, each input read once and each output written once:
//                      forward: 2·(2·V·H + 2·T·H) + 4·T,   full: 2·(V·H + T·H) more
//
// The published floor, 632.3 us at 1024 tokens, is the second one at 3.35 TB/s. The first is the larger one
// from about rate/bandwidth tokens up: 295 on an H100, 206 on an H200.
#pragma once

#include <optional>
#include <string>

#include "reference/problem.h"

namespace fljsd {

// Rates of one kind of GPU.
struct GpuRates {
  std::string name;      // as CUDA reports it, or the beginning of that
  double flops = 0;      // dense bf16 with fp32 sums, per second
  double bandwidth = 0;  // bytes per second
  std::string source;
};

// From the table of datasheets; absent for a GPU that is not in it.
std::optional<GpuRates> datasheet_rates(const std::string& gpu_name);

struct Floors {
  double arithmetic_ms = 0, bandwidth_ms = 0;
  double binding_ms() const { return arithmetic_ms > bandwidth_ms ? arithmetic_ms : bandwidth_ms; }
};

enum class Pass { forward, full };

Floors floors(const GpuRates& rates, Pass pass, Index tokens, Index vocab, Index hidden);

}  // namespace fljsd
