// SPDX-License-Identifier: Apache-2.0
// One GPU against several of the same machine: time of a pass, parallel efficiency, bytes exchanged, and how
// far the results differ. Program distributed_benchmark; docs/distributed.md shows what it measured.
//
// All variants have the same tensors and take turns, so that a falling clock is everybody's. A sample: all
// ranks meet, then each enqueues a few calls between two events; the slowest rank's time counts, and each
// rank's is kept. As every exchange waits for the slowest, these hardly differ: how the GPUs do is seen with
// variant shards-apart, in which each sweeps its shard at the same time as the others, by itself. Every GPU
// holds the whole weights, and a rank is given its part of them.
#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <numeric>
#include <stdexcept>

#include <cuda_runtime_api.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "reference/dtype.h"
#include "reference/shards.h"
#include "verify/bench/gpu/fill.h"
#include "verify/candidates/cuda/rank_team.h"

namespace fljsd::bench {
namespace {

using nlohmann::ordered_json;

void check(cudaError_t error) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("CUDA reported ") + cudaGetErrorString(error) + ".");
}
void check(fljsd_status status) {
  if (status != FLJSD_OK) throw std::runtime_error(fljsd_last_error());
}

struct Sizes {
  Index tokens = 1024, vocab = 128256, hidden = 4096;
  std::int64_t timeout_ms = 20'000;
};

class Memory {
 public:
  explicit Memory(Index bytes) {
    check(cudaMalloc(&data_, static_cast<std::size_t>(std::max<Index>(bytes, 1))));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(data_); }
  std::byte* get() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

// What every variant uses on one GPU: bf16 tensors, and room for outputs.
struct GpuTensors {
  Memory student_input, teacher_input, student_weight, teacher_weight, input_grad, weight_grad, token_loss,
      loss;

  GpuTensors(const Sizes& s, Inputs inputs)
      : student_input(2 * s.tokens * s.hidden),
        teacher_input(2 * s.tokens * s.hidden),
        student_weight(2 * s.vocab * s.hidden),
        teacher_weight(2 * s.vocab * s.hidden),
        input_grad(2 * s.tokens * s.hidden),
        weight_grad(2 * s.vocab * s.hidden),
        token_loss(4 * s.tokens),
        loss(4) {
    fill_bf16(student_input.get(), s.tokens * s.hidden, inputs, false, 1);
    fill_bf16(teacher_input.get(), s.tokens * s.hidden, inputs, false, 2);
    fill_bf16(student_weight.get(), s.vocab * s.hidden, inputs, true, 3);
    fill_bf16(teacher_weight.get(), s.vocab * s.hidden, inputs, true, 4);
    check(cudaDeviceSynchronize());
  }
};

// One rank of a variant.
class Rank {
 public:
  // ranks: those it works with; null: it works by itself.
  Rank(const Sizes& s, const GpuTensors& gpu, const char* stage, fljsd_pass pass, const fljsd_ranks* ranks,
       const Shard& shard, const Shard& part)
      : pass_(pass), timeout_ms_(s.timeout_ms) {
    fljsd_config c;
    check(fljsd_config_init(&c, sizeof c));
    c.tokens = part.size;
    c.vocab = shard.size;
    c.student_hidden = c.teacher_hidden = s.hidden;
    c.stage = stage;
    c.gradients = pass == FLJSD_FORWARD ? 0 : FLJSD_STUDENT_INPUT_GRAD | FLJSD_STUDENT_WEIGHT_GRAD;
    check(ranks == nullptr ? fljsd_plan_create(&c, &plan_)
                           : fljsd_plan_create_distributed(&c, ranks, &plan_));
    const auto rows = [&](const Memory& m, const Shard& of) { return m.get() + 2 * of.first * s.hidden; };
    t_.struct_size = sizeof t_;
    t_.student_input = rows(gpu.student_input, part);
    t_.teacher_input = rows(gpu.teacher_input, part);
    t_.student_weight = rows(gpu.student_weight, shard);
    t_.teacher_weight = rows(gpu.teacher_weight, shard);
    t_.loss = reinterpret_cast<float*>(gpu.loss.get());
    t_.token_loss = reinterpret_cast<float*>(gpu.token_loss.get());
    t_.student_input_grad = gpu.input_grad.get();
    t_.student_weight_grad = gpu.weight_grad.get();
    check(fljsd_plan_workspace_bytes(plan_, pass, &workspace_bytes));
    check(fljsd_plan_exchanged_bytes(plan_, pass, &exchanged_bytes));
    workspace_ = std::make_unique<Memory>(static_cast<Index>(workspace_bytes));
    check(cudaStreamCreate(&stream_));
    check(cudaEventCreate(&start_));
    check(cudaEventCreate(&stop_));
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    fljsd_plan_destroy(plan_);
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
    cudaStreamDestroy(stream_);
  }

  const char* plan() const { return fljsd_plan_describe(plan_); }
  void tune() { check(fljsd_plan_tune(plan_, pass_, &t_, workspace_->get(), workspace_bytes, stream_)); }

  // Milliseconds a call.
  double measure(int calls) {
    check(cudaEventRecord(start_, stream_));
    for (int i = 0; i < calls; ++i) {
      const auto call = pass_ == FLJSD_FORWARD ? fljsd_forward : fljsd_forward_backward;
      check(call(plan_, &t_, workspace_->get(), workspace_bytes, stream_));
    }
    check(cudaEventRecord(stop_, stream_));
    check(fljsd_plan_wait(plan_, stream_, timeout_ms_));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start_, stop_));
    return static_cast<double>(milliseconds) / calls;
  }

  std::uint64_t workspace_bytes = 0, exchanged_bytes = 0;

 private:
  fljsd_pass pass_;
  std::int64_t timeout_ms_;
  fljsd_plan* plan_ = nullptr;
  fljsd_tensors t_{};
  std::unique_ptr<Memory> workspace_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

using Gpus = std::vector<std::unique_ptr<GpuTensors>>;

// What a variant is: a stage on the ranks of a team, that work together or each on its shard by itself.
struct Way {
  std::string name;
  const char* stage;
  const RankTeam* team;
  bool apart = false;
};

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(std::lround(q * static_cast<double>(values.size() - 1)))];
}

// One way to compute a pass, on one GPU or several.
class Variant {
 public:
  Variant(Way way, fljsd_pass pass, const Sizes& s, const Gpus& gpus)
      : way_(std::move(way)),
        team_(*way_.team),
        ranks_(static_cast<std::size_t>(team_.grid().ranks())),
        rank_samples_(ranks_.size()) {
    const RankTeam& team = team_;
    const bool together = ranks_.size() > 1 && !way_.apart;
    const std::vector<Shard> shards = cut_vocabulary(s.vocab, team.grid().vocab);
    const std::vector<Shard> parts = cut_vocabulary(s.tokens, team.grid().tokens);
    team.run([&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      const fljsd_ranks others = team.ranks_of(rank);
      ranks_[r] = std::make_unique<Rank>(s, *gpus[r], way_.stage, pass, together ? &others : nullptr,
                                         shards[static_cast<std::size_t>(rank % team.grid().vocab)],
                                         parts[static_cast<std::size_t>(rank / team.grid().vocab)]);
    });
    // Not before everybody has allocated: where ranks share a process, an allocation may wait for other GPUs.
    team.run([&](int rank) { ranks_[static_cast<std::size_t>(rank)]->tune(); });
  }
  ~Variant() {
    team_.run([&](int rank) { ranks_[static_cast<std::size_t>(rank)].reset(); });
  }
  Variant(const Variant&) = delete;
  Variant& operator=(const Variant&) = delete;

  double measure(int repeats) {
    std::barrier meet(team_.grid().ranks());
    std::vector<double> times(ranks_.size());
    team_.run([&](int rank) {
      meet.arrive_and_wait();
      times[static_cast<std::size_t>(rank)] = ranks_[static_cast<std::size_t>(rank)]->measure(repeats);
    });
    last_times_ = times;
    return *std::max_element(times.begin(), times.end());
  }
  void sample() {
    samples.push_back(measure(calls));
    for (std::size_t r = 0; r < ranks_.size(); ++r) rank_samples_[r].push_back(last_times_[r]);
  }
  // [rank][sample].
  const std::vector<std::vector<double>>& rank_samples() const { return rank_samples_; }
  std::vector<double> rank_medians() const {
    std::vector<double> medians;
    for (const std::vector<double>& of_rank : rank_samples_) medians.push_back(quantile(of_rank, 0.5));
    return medians;
  }

  const std::string& name() const { return way_.name; }
  bool is_apart() const { return way_.apart; }
  int gpus() const { return team_.grid().ranks(); }
  bool cuts_tokens() const { return team_.grid().tokens > 1; }
  const Rank& first() const { return *ranks_[0]; }
  std::vector<double> samples;
  int calls = 1;

 private:
  Way way_;
  const RankTeam& team_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<double> last_times_;  // of each rank
  std::vector<std::vector<double>> rank_samples_;
};

// What GPU 0 holds after a call.
struct Outputs {
  float loss = 0;
  std::vector<double> input_grad, weight_grad;  // of the first rows
};
Outputs outputs_of(const GpuTensors& gpu, const Sizes& s, bool gradients) {
  Outputs out;
  check(cudaMemcpy(&out.loss, gpu.loss.get(), 4, cudaMemcpyDeviceToHost));
  const auto rows = [&](const Memory& m, Index count) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(2 * count * s.hidden));
    check(cudaMemcpy(bytes.data(), m.get(), bytes.size(), cudaMemcpyDeviceToHost));
    std::vector<double> values(bytes.size() / 2);
    load_run(DType::bf16, bytes.data(), 0, static_cast<Index>(values.size()), values.data());
    return values;
  };
  if (gradients) {
    out.input_grad = rows(gpu.input_grad, std::min<Index>(s.tokens / 2, 256));
    out.weight_grad = rows(gpu.weight_grad, std::min<Index>(s.vocab / 2, 256));
  }
  return out;
}
// ‖a − b‖₂/‖b‖₂.
double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

ordered_json measure(const Sizes& s, fljsd_pass pass, Inputs inputs, int rounds,
                     const std::vector<Way>& what) {
  const RankTeam& all = *what.back().team;
  Gpus gpus(static_cast<std::size_t>(all.grid().ranks()));
  all.run([&](int rank) { gpus[static_cast<std::size_t>(rank)] = std::make_unique<GpuTensors>(s, inputs); });
  const bool gradients = pass == FLJSD_FORWARD_BACKWARD;
  std::vector<std::unique_ptr<Variant>> variants;
  for (const Way& way : what) variants.push_back(std::make_unique<Variant>(way, pass, s, gpus));
  std::vector<Outputs> outputs;
  for (const auto& v : variants) {
    all.run([&](int rank) {
      const GpuTensors& g = *gpus[static_cast<std::size_t>(rank)];
      poison(g.input_grad.get(), 2 * s.tokens * s.hidden);
      poison(g.weight_grad.get(), 2 * s.vocab * s.hidden);
      poison(g.loss.get(), 4);
      check(cudaDeviceSynchronize());
    });
    v->calls = std::max(1, static_cast<int>(20 / v->measure(1)));
    outputs.push_back(outputs_of(*gpus[0], s, gradients));
  }
  for (int round = 0; round < rounds + 2; ++round) {  // two to warm up
    for (const auto& v : variants) {
      if (round < 2) {
        v->measure(v->calls);
      } else {
        v->sample();
      }
    }
  }
  ordered_json list = ordered_json::array();
  const double one = quantile(variants[0]->samples, 0.5);
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const Variant& v = *variants[i];
    const double median = quantile(v.samples, 0.5);
    ordered_json entry{{"variant", v.name()},
                       {"gpus", v.gpus()},
                       {"tokens", s.tokens},
                       {"pass", gradients ? "forward_backward" : "forward"},
                       {"ms_median", median},
                       {"ms_p10", quantile(v.samples, 0.1)},
                       {"ms_p90", quantile(v.samples, 0.9)},
                       {"parallel_efficiency", one / (median * v.gpus())},
                       {"exchanged_bytes_sent_per_rank", v.first().exchanged_bytes},
                       {"workspace_bytes_rank_0", v.first().workspace_bytes},
                       {"plan_rank_0", v.first().plan()}};
    if (v.gpus() > 1) entry["ms_median_by_rank"] = v.rank_medians();
    if (!v.is_apart()) {  // whose losses are of the shards
      entry["loss"] = static_cast<double>(outputs[i].loss);
      entry["loss_minus_one_gpu"] =
          static_cast<double>(outputs[i].loss) - static_cast<double>(outputs[0].loss);
    }
    if (gradients && !v.is_apart()) {
      entry["input_grad_relative_difference"] =
          relative_difference(outputs[i].input_grad, outputs[0].input_grad);
      // Where tokens are cut this rank's weight gradient is of its tokens only.
      if (!v.cuts_tokens()) {
        entry["weight_grad_relative_difference"] =
            relative_difference(outputs[i].weight_grad, outputs[0].weight_grad);
      }
    }
    entry["ms_samples"] = v.samples;
    if (v.gpus() > 1) entry["ms_samples_by_rank"] = v.rank_samples();
    std::printf("%-16s %d GPU  %5lld tokens  %-16s %8.3f ms  efficiency %.3f  sent %llu bytes",
                v.name().c_str(), v.gpus(), static_cast<long long>(s.tokens),
                gradients ? "forward_backward" : "forward", median, one / (median * v.gpus()),
                static_cast<unsigned long long>(v.first().exchanged_bytes));
    if (!v.is_apart()) std::printf("  loss %.9g", static_cast<double>(outputs[i].loss));
    if (v.gpus() > 1) {
      std::printf("  by rank");
      for (const double of_rank : v.rank_medians()) std::printf(" %.3f", of_rank);
    }
    std::printf("\n");
    std::fflush(stdout);
    list.push_back(std::move(entry));
  }
  while (!variants.empty()) variants.pop_back();
  all.run([&](int rank) { gpus[static_cast<std::size_t>(rank)].reset(); });
  return list;
}

int run(int argc, char** argv) {
  CLI::App app{"Time of distributed plans against one GPU."};
  Sizes s;
  std::vector<Index> tokens{1024, 2048, 4096, 8192};
  int rounds = 15, gpus = 2;
  std::string json, inputs = "normal";
  app.add_option("--tokens", tokens, "tokens, one or more")->delimiter(',');
  app.add_option("--vocab", s.vocab);
  app.add_option("--hidden", s.hidden);
  app.add_option("--gpus", gpus);
  app.add_option("--rounds", rounds, "samples of each variant");
  app.add_option("--inputs", inputs, "uniform, normal or peaked");
  app.add_option("--json", json, "where to write the record; rewritten after each size");
  CLI11_PARSE(app, argc, argv);

  const RankTeam one({1, 1}, s.timeout_ms), tokens_cut({1, gpus}, s.timeout_ms),
      vocab_cut({gpus, 1}, s.timeout_ms);
  std::int32_t nccl = 0;
  check(fljsd_distributed_available(&nccl));
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0));
  int can_access = 0;
  if (gpus > 1) check(cudaDeviceCanAccessPeer(&can_access, 0, 1));
  ordered_json record{{"gpu", properties.name},
                      {"gpus", gpus},
                      {"peer_access", can_access != 0},
                      {"nccl", nccl},
                      {"library", fljsd_version()},
                      {"inputs", inputs},
                      {"vocab", s.vocab},
                      {"hidden", s.hidden},
                      {"dtype", "bf16"},
                      {"beta", 0.5},
                      {"rounds", rounds},
                      {"results", ordered_json::array()}};
  for (const Index count : tokens) {
    s.tokens = count;
    for (const fljsd_pass pass : {FLJSD_FORWARD, FLJSD_FORWARD_BACKWARD}) {
      const auto part =
          measure(s, pass, parse_inputs(inputs), rounds,
                  {{"chunked-vocab", "chunked-vocab", &one},
                   {"fused", "fused", &one},
                   {"token-parallel", "chunked-vocab", &tokens_cut},
                   // The stage whose sweep a shard has.
                   {"shards-apart", pass == FLJSD_FORWARD ? "fused" : "chunked-vocab", &vocab_cut, true},
                   {"vocab-parallel", "chunked-vocab", &vocab_cut}});
      for (const auto& entry : part) record["results"].push_back(entry);
      if (!json.empty()) std::ofstream(json) << record.dump(1) << '\n';
    }
  }
  return 0;
}

}  // namespace
}  // namespace fljsd::bench

int main(int argc, char** argv) {
  try {
    return fljsd::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
