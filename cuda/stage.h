// SPDX-License-Identifier: Apache-2.0
// A stage is one way to compute the same thing. The registry in stages.cpp is what feeds the interface, the
// tests and the benchmark: a new stage is one file and one line there.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "cuda/settings.h"

namespace fljsd::cuda {

class Stage {
 public:
  virtual ~Stage() = default;
  virtual Index workspace_bytes(fljsd_pass pass) const = 0;
  // Enqueues the pass. Called with checked arguments and enough workspace, and with tokens > 0 unless it
  // takes empty batches.
  virtual void run(fljsd_pass pass, const Call& call) const = 0;
  // Measures the matrix products of the pass on the call's buffers and keeps the fastest algorithms;
  // synchronises.
  virtual void tune(fljsd_pass pass, const Call& call) = 0;
  // Chunks and algorithms, one line each.
  virtual std::string describe() const = 0;
  // Whether run() and tune() do something for an empty batch too: other ranks wait for this one.
  virtual bool takes_empty_batches() const { return false; }
};

constexpr int any_newer = 1 << 30;  // the maximum_capability of most stages

struct StageEntry {
  const char* name;
  const char* description;
  bool is_baseline;
  fljsd_dtype logits_dtype;
  int minimum_capability, maximum_capability;  // 10 * major + minor
  std::unique_ptr<Stage> (*make)(const Settings& settings);
};

std::span<const StageEntry> stages();

// Throws Failure(FLJSD_INVALID_ARGUMENT) for an unknown name, listing those that exist.
const StageEntry& find_stage(const std::string& name);

// Throws Failure(FLJSD_UNSUPPORTED) when the stage does not run on the device.
void require_device(const StageEntry& stage, const Device& device);

// One file each.
std::unique_ptr<Stage> make_gemm_stage(const Settings& settings);
std::unique_ptr<Stage> make_hopper_gemm(const Settings& settings);
std::unique_ptr<Stage> make_hopper_log_sum_exp(const Settings& settings);
std::unique_ptr<Stage> make_unfused(const Settings& settings);
std::unique_ptr<Stage> make_unfused_bf16_logits(const Settings& settings);
std::unique_ptr<Stage> make_chunked_tokens(const Settings& settings);
std::unique_ptr<Stage> make_chunked_vocab(const Settings& settings);
std::unique_ptr<Stage> make_fused(const Settings& settings);
std::unique_ptr<Stage> make_fused_two_pass(const Settings& settings);

}  // namespace fljsd::cuda
