// SPDX-License-Identifier: Apache-2.0
// fljsd bench: times the CUDA stages against the plain matrix products, and checks what they return.
//
// Method. All variants run round-robin over the same tensors in one stream, so that a clock that falls with
// temperature and power is the same for all; what is reported is the median ratio to the baseline of the same
// round, and the median, 10th and 90th percentile of the time. A second of matrix products goes first.
// Outputs are poisoned before the first run and compared with float64 truth after it; the token losses of
// every timed run are compared bitwise with that run's.
//
//   forward              baseline G2: stage gemm, forward
//   forward + gradients  baselines G4: stage gemm, forward and backward; G6 = G4 + G2
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "verify/bench/record.h"

namespace fljsd {

struct BenchRequest {
  std::vector<Index> tokens{1024, 2048, 4096, 8192};
  Index vocab = 128256, hidden = 4096;
  std::vector<std::string> inputs{"uniform", "normal"};
  // "stage" or "stage:chunk_tokens:chunk_vocab:gradient_chunk_vocab"; 0 lets the stage choose.
  std::vector<std::string> variants{"unfused", "unfused-bf16-logits", "chunked-tokens", "chunked-vocab",
                                    "fused",   "fused-two-pass"};
  std::vector<std::string> passes{"forward", "full"};
  int rounds = 30;  // samples of each variant up to 2048 tokens; half as many (at least 10) beyond
  double beta = 0.5, temperature = 1;
  Index truth_tokens = 1024;  // truth is computed for at most so many tokens
  double warm_up = 1;         // seconds
  // Seconds without work before each sample: 0 for times at the clock that steady work has, which a card at
  // its power limit lowers; with a pause it has cooled, and the launch's latency counts.
  double pause = 0;
  bool tune = true;  // choose cuBLASLt's algorithms by measuring
  std::uint64_t seed = 20261130;
};

// The families of inputs that a request may name.
std::vector<std::string> bench_inputs();
// The names of all stages but the baseline; empty when the program was built without CUDA.
std::vector<std::string> bench_stages();

// Empty when there is a GPU that the stages run on; else one sentence that says why not.
std::string why_no_gpu();
// Only where why_no_gpu() is empty.
GpuInfo find_gpu();

// Needs why_no_gpu() to be empty. `on_step` hears what is being done; `on_row` each row when it is there.
// Fills all of the record but `run`. Throws std::runtime_error with the library's or CUDA's sentence.
BenchRecord run_bench(const BenchRequest& request, const std::function<void(const std::string&)>& on_step,
                      const std::function<void(const BenchRow&)>& on_row);

// What a promise of the measured stages is, and whether the rows keep it: outputs repeat, and losses of
// stages with fp32 logits are within 5e-6 nats of the truth (docs/kernels.md). Sentences about those that do
// not.
std::vector<std::string> bench_findings(const BenchRecord& record);

}  // namespace fljsd
