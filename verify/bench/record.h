// SPDX-License-Identifier: Apache-2.0
// What a benchmark measured, as plain data: run_bench() fills it, rendering and `fljsd reproduce` read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "verify/audit/report.h"

namespace fljsd {

struct GpuInfo {
  std::string name, driver;
  int cuda_runtime = 0;  // 13000 is CUDA 13.0
  int capability = 0;    // 10 * major + minor
  int multiprocessors = 0;
  double clock_hz = 0;            // highest clock of the multiprocessors; 0: not reported
  double memory_bandwidth = 0;    // bytes per second, from memory clock and bus width; 0: not reported
  std::int64_t memory_bytes = 0;  // of the device
};

// One stage, one pass, one number of tokens.
struct BenchRow {
  std::string inputs;  // family of the inputs
  Index tokens = 0;
  std::string pass;     // "forward", or "full": forward and gradients
  std::string variant;  // stage, perhaps with chunk sizes; a peer's name
  // The plain products that make what the row makes: "G2" forward, "G4" with gradients, and "G6" with
  // gradients where the logits are computed twice because they are not kept.
  std::string baseline;
  std::vector<double> milliseconds;  // every sample
  double median_ratio = 0;  // of the samples to the baseline's of the same round: G2 forward, G4 full
  std::optional<double> median_ratio_g6;     // full: to G4 and G2 together
  std::int64_t workspace_bytes = 0;          // that a caller must provide, besides inputs and gradients
  std::optional<std::int64_t> device_bytes;  // by which the memory in use grew, as the device reports it
  // Against float64 truth; absent where there is none.
  std::optional<double> loss, loss_error, largest_token_error;  // absolute, in nats
  std::optional<double> input_grad_error, weight_grad_error;    // relative, 2-norm
  bool outputs_repeat = true;  // token losses of every timed run have the bits of the checked one
  std::string plan;            // the stage's chunks and algorithms

  bool is_baseline() const { return variant == "gemm"; }
  // One of the implementations that run_peers() measures.
  bool is_peer() const { return variant.starts_with("torch") || variant == "liger"; }
  double ratio() const { return baseline == "G6" && median_ratio_g6 ? *median_ratio_g6 : median_ratio; }
  double quantile(double p) const;  // of the samples; nearest rank
  double median() const { return quantile(0.5); }
};

// While one group of rows was timed.
struct ClockRow {
  std::string inputs, pass;
  Index tokens = 0;
  int samples = 0;  // 0: there was nothing to read them from
  double mean_sm_mhz = 0, mean_watts = 0, highest_celsius = 0;
};

struct BenchRecord {
  RunRecord run;
  GpuInfo gpu;
  Index vocab = 0, hidden = 0;
  double beta = 0.5, temperature = 1;
  bool tuned = true;
  std::string clock_source;  // "NVML", or why there is none
  std::vector<ClockRow> clocks;
  std::vector<BenchRow> rows;

  const BenchRow* find(const std::string& inputs, Index tokens, const std::string& pass,
                       const std::string& variant) const;
};

// BenchRow::baseline by the row's pass, variant and plan: with gradients, chunked-vocab computes the logits
// twice, and so does a plan that says that it leaves gradients to it.
std::string baseline_of(const BenchRow& row);

nlohmann::ordered_json bench_json(const BenchRecord& record);
// The inverse; fields that older records lack keep their defaults. Throws std::invalid_argument, one sentence
// that begins with `origin`, for anything else.
BenchRecord parse_bench_json(const std::string& text, const std::string& origin);

}  // namespace fljsd
