// SPDX-License-Identifier: Apache-2.0
// Times the stages on a GPU against the plain matrix products, and checks what they return.
//
// Method. All variants run round-robin over the same tensors in one stream, so that a clock that falls with
// temperature and power is the same for all; what is reported is the median ratio to the baseline of the same
// round, and the median, 10th and 90th percentile of the time. A second of matrix products goes first.
// Outputs are poisoned before the first run and compared with float64 truth after it; the token losses of
// every timed run are compared bitwise with that run's.
//
//   forward              baseline G2: stage gemm, forward
//   forward + gradients  baselines G4: stage gemm, forward and backward; G6 = G4 + G2
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cuda/fljsd.h"
#include "verify/bench/gpu/clock_log.h"
#include "verify/bench/gpu/fill.h"
#include "verify/bench/gpu/float64_truth.h"

namespace fljsd::bench {
namespace {

using Index = std::int64_t;
using nlohmann::json;

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}
void check(fljsd_status status) {
  if (status != FLJSD_OK) throw std::runtime_error(fljsd_last_error());
}

class Memory {
 public:
  Memory() = default;
  explicit Memory(Index bytes) : bytes_(bytes) {
    check(cudaMalloc(&data_, static_cast<std::size_t>(std::max<Index>(bytes, 1))));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(data_); }
  void* get() const { return data_; }
  Index bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  Index bytes_ = 0;
};

struct Arguments {
  std::vector<Index> tokens{1024, 2048, 4096, 8192};
  Index vocab = 128256, hidden = 4096;
  std::vector<std::string> inputs{"uniform", "normal"};
  std::vector<std::string> variants{"unfused", "unfused-bf16-logits", "chunked-tokens", "chunked-vocab"};
  std::vector<std::string> passes{"forward", "full"};
  int rounds = 30;
  double beta = 0.5, temperature = 1;
  Index truth_tokens = 1024;
  double warm_up = 1;
  bool tune = true;
  std::uint64_t seed = 20261130;
  std::string out;
};

// "stage" or "stage:chunk_tokens:chunk_vocab:gradient_chunk_vocab"; 0 lets the stage choose.
struct Variant {
  std::string label, stage;
  Index chunks[3] = {0, 0, 0};

  explicit Variant(const std::string& text) : label(text), stage(text.substr(0, text.find(':'))) {
    std::size_t at = text.find(':');
    for (Index& chunk : chunks) {
      if (at == std::string::npos) break;
      chunk = std::stoll(text.substr(at + 1));
      at = text.find(':', at + 1);
    }
  }
};

struct Plan {
  fljsd_plan* plan = nullptr;
  Plan(const Arguments& a, const Variant& v, Index tokens, bool gradients) {
    fljsd_config c;
    check(fljsd_config_init(&c, sizeof c));
    c.tokens = tokens;
    c.vocab = a.vocab;
    c.student_hidden = c.teacher_hidden = a.hidden;
    c.beta = a.beta;
    c.temperature = a.temperature;
    c.gradients = gradients ? FLJSD_STUDENT_INPUT_GRAD | FLJSD_STUDENT_WEIGHT_GRAD : 0;
    c.stage = v.stage.c_str();
    c.chunk_tokens = v.chunks[0];
    c.chunk_vocab = v.chunks[1];
    c.gradient_chunk_vocab = v.chunks[2];
    check(fljsd_plan_create(&c, &plan));
  }
  Plan(Plan&& other) noexcept : plan(std::exchange(other.plan, nullptr)) {}
  Plan(const Plan&) = delete;
  ~Plan() { fljsd_plan_destroy(plan); }
};

double percentile(std::vector<double> values, double p) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(std::lround(p * static_cast<double>(values.size() - 1)))];
}

struct Tensors {
  Memory student_input, student_weight, teacher_input, teacher_weight, input_grad, weight_grad;
  Tensors(Index tokens, Index vocab, Index hidden)
      : student_input(2 * tokens * hidden),
        student_weight(2 * vocab * hidden),
        teacher_input(2 * tokens * hidden),
        teacher_weight(2 * vocab * hidden),
        input_grad(2 * tokens * hidden),
        weight_grad(2 * vocab * hidden) {}

  fljsd_tensors of_call(float* loss, float* token_loss) const {
    fljsd_tensors t{};
    t.struct_size = sizeof t;
    t.student_input = student_input.get();
    t.student_weight = student_weight.get();
    t.teacher_input = teacher_input.get();
    t.teacher_weight = teacher_weight.get();
    t.loss = loss;
    t.token_loss = token_loss;
    t.student_input_grad = input_grad.get();
    t.student_weight_grad = weight_grad.get();
    return t;
  }
};

// One line of the table.
struct Row {
  std::string inputs, pass, label;
  Index tokens = 0, workspace = 0;
  std::vector<double> milliseconds, ratio, ratio6;  // ratio6: to G6, with gradients only
  double loss = NAN, loss_error = NAN, token_error = NAN, input_grad_error = NAN, weight_grad_error = NAN;
  bool outputs_repeat = true, is_baseline = false;
  std::string description;
};

class Benchmark {
 public:
  explicit Benchmark(const Arguments& a)
      : a_(a),
        most_(*std::max_element(a.tokens.begin(), a.tokens.end())),
        tensors_(most_, a.vocab, a.hidden),
        clocks_(0) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }

  void run() {
    for (const std::string& inputs : a_.inputs) {
      const Inputs family = parse_inputs(inputs);
      fill_bf16(tensors_.student_input.get(), most_ * a_.hidden, family, false, a_.seed);
      fill_bf16(tensors_.teacher_input.get(), most_ * a_.hidden, family, false, a_.seed + 1);
      fill_bf16(tensors_.student_weight.get(), a_.vocab * a_.hidden, family, true, a_.seed + 2);
      fill_bf16(tensors_.teacher_weight.get(), a_.vocab * a_.hidden, family, true, a_.seed + 3);
      check(cudaDeviceSynchronize());
      for (const Index tokens : a_.tokens) {
        std::optional<Float64Truth> truth;
        if (tokens <= a_.truth_tokens) {
          truth.emplace(TruthProblem{tokens, a_.vocab, a_.hidden, tensors_.student_input.get(),
                                     tensors_.student_weight.get(), tensors_.teacher_input.get(),
                                     tensors_.teacher_weight.get(), a_.beta, a_.temperature});
        }
        for (const std::string& pass : a_.passes)
          measure(inputs, tokens, pass == "full", truth ? &*truth : nullptr);
      }
    }
    write();
  }

 private:
  void measure(const std::string& inputs, Index tokens, bool full, const Float64Truth* truth) {
    const std::int32_t pass = full ? FLJSD_FORWARD_BACKWARD : FLJSD_FORWARD;
    // The baseline first; for G6 its forward pass is timed too.
    std::vector<Variant> variants{Variant("gemm")};
    for (const std::string& text : a_.variants) variants.emplace_back(text);
    std::vector<Plan> plans;
    std::vector<Row> rows;
    Index workspace_bytes = 0;
    for (const Variant& v : variants) {
      plans.emplace_back(a_, v, tokens, full);
      Row row;
      row.inputs = inputs, row.pass = full ? "full" : "forward", row.label = v.label, row.tokens = tokens;
      row.is_baseline = v.stage == "gemm";
      std::uint64_t bytes = 0;
      check(fljsd_plan_workspace_bytes(plans.back().plan, pass, &bytes));
      row.workspace = static_cast<Index>(bytes);
      workspace_bytes = std::max(workspace_bytes, row.workspace);
      rows.push_back(row);
    }
    const Memory workspace(workspace_bytes);
    const int rounds = tokens <= 2048 ? a_.rounds : std::max(10, a_.rounds / 2);
    const Index runs = static_cast<Index>(variants.size()) * (rounds + 1);
    const Memory losses(4 * runs), token_losses(4 * runs * tokens);
    poison(losses.get(), losses.bytes());
    poison(token_losses.get(), token_losses.bytes());
    const auto loss_of = [&](std::size_t variant, int round) {
      return static_cast<float*>(losses.get()) + (static_cast<Index>(variant) * (rounds + 1) + round);
    };
    const auto token_losses_of = [&](std::size_t variant, int round) {
      return static_cast<float*>(token_losses.get()) +
             (static_cast<Index>(variant) * (rounds + 1) + round) * tokens;
    };
    const auto enqueue = [&](std::size_t variant, std::int32_t which, int round) {
      const fljsd_tensors t = tensors_.of_call(loss_of(variant, round), token_losses_of(variant, round));
      const auto bytes = static_cast<std::uint64_t>(workspace_bytes);
      check(which == FLJSD_FORWARD
                ? fljsd_forward(plans[variant].plan, &t, workspace.get(), bytes, stream_)
                : fljsd_forward_backward(plans[variant].plan, &t, workspace.get(), bytes, stream_));
    };

    // Choose algorithms, then run once and check.
    for (std::size_t i = 0; i < variants.size(); ++i) {
      const fljsd_tensors t = tensors_.of_call(loss_of(i, 0), token_losses_of(i, 0));
      if (a_.tune) {
        check(fljsd_plan_tune(plans[i].plan, pass, &t, workspace.get(),
                              static_cast<std::uint64_t>(workspace_bytes), stream_));
      }
      rows[i].description = fljsd_plan_describe(plans[i].plan);
      poison(workspace.get(), workspace_bytes);
      poison(tensors_.input_grad.get(), tensors_.input_grad.bytes());
      poison(tensors_.weight_grad.get(), tensors_.weight_grad.bytes());
      poison(loss_of(i, 0), 4);
      poison(token_losses_of(i, 0), 4 * tokens);
      check(cudaDeviceSynchronize());
      enqueue(i, pass, 0);
      check(cudaStreamSynchronize(stream_));
      if (truth == nullptr || rows[i].is_baseline) continue;
      const std::vector<float> got = to_host(token_losses_of(i, 0), tokens);
      double error = 0, mean = 0;
      for (std::size_t t_ = 0; t_ < got.size(); ++t_) {
        const double difference = std::abs(static_cast<double>(got[t_]) - truth->token_loss()[t_]);
        if (!(difference <= error)) error = difference;  // NaN stays
        mean += truth->token_loss()[t_] / static_cast<double>(tokens);
      }
      rows[i].token_error = error;
      rows[i].loss = static_cast<double>(to_host(loss_of(i, 0), 1)[0]);
      rows[i].loss_error = std::abs(rows[i].loss - mean);
      if (!full) continue;
      rows[i].input_grad_error = truth->input_grad_error(tensors_.input_grad.get());
      rows[i].weight_grad_error = truth->weight_grad_error(tensors_.weight_grad.get());
    }

    // Warm up, then take turns.
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < a_.warm_up) {
      for (int i = 0; i < 3; ++i) enqueue(0, pass, 0);
      check(cudaStreamSynchronize(stream_));
    }
    clocks_.take();
    const std::size_t slots =
        variants.size() + (full ? 1 : 0);  // with gradients the baseline's forward pass too
    std::vector<cudaEvent_t> events(static_cast<std::size_t>(rounds) * slots + 1);
    for (cudaEvent_t& event : events) check(cudaEventCreate(&event));
    std::size_t next = 0;
    check(cudaEventRecord(events[next++], stream_));
    for (int round = 1; round <= rounds; ++round) {
      for (std::size_t slot = 0; slot < slots; ++slot) {
        if (slot < variants.size()) {
          enqueue(slot, pass, round);
        } else {
          enqueue(0, FLJSD_FORWARD, round);
        }
        check(cudaEventRecord(events[next++], stream_));
      }
    }
    check(cudaStreamSynchronize(stream_));
    record_clocks(inputs, tokens, full);
    for (int round = 0; round < rounds; ++round) {
      const auto time = [&](std::size_t slot) {
        const std::size_t at = static_cast<std::size_t>(round) * slots + slot;
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, events[at], events[at + 1]));
        return static_cast<double>(milliseconds);
      };
      const double base = time(0);
      for (std::size_t i = 0; i < variants.size(); ++i) {
        rows[i].milliseconds.push_back(time(i));
        rows[i].ratio.push_back(time(i) / base);
        if (full) rows[i].ratio6.push_back(time(i) / (base + time(variants.size())));
      }
    }
    for (cudaEvent_t event : events) check(cudaEventDestroy(event));
    for (std::size_t i = 0; i < variants.size(); ++i) {
      const std::vector<float> want = to_host(token_losses_of(i, 0), tokens);
      for (int round = 1; round <= rounds && !rows[i].is_baseline; ++round) {
        const std::vector<float> got = to_host(token_losses_of(i, round), tokens);
        rows[i].outputs_repeat &= std::memcmp(got.data(), want.data(), want.size() * 4) == 0;
      }
      print(rows[i]);
      rows_.push_back(rows[i]);
    }
  }

  std::vector<float> to_host(const float* data, Index count) const {
    std::vector<float> host(static_cast<std::size_t>(count));
    check(cudaMemcpy(host.data(), data, host.size() * 4, cudaMemcpyDeviceToHost));
    return host;
  }

  void record_clocks(const std::string& inputs, Index tokens, bool full) {
    double mhz = 0, watts = 0, celsius = 0;
    const std::vector<ClockSample> samples = clocks_.take();
    for (const ClockSample& s : samples)
      mhz += s.sm_mhz, watts += s.watts, celsius = std::max(celsius, s.celsius);
    const double count = std::max<double>(1, static_cast<double>(samples.size()));
    clock_records_.push_back({{"inputs", inputs},
                              {"tokens", tokens},
                              {"pass", full ? "full" : "forward"},
                              {"samples", samples.size()},
                              {"mean_sm_mhz", mhz / count},
                              {"mean_watts", watts / count},
                              {"highest_celsius", celsius}});
    std::printf("# %s, %lld tokens, %s: %.0f MHz, %.0f W\n", inputs.c_str(), static_cast<long long>(tokens),
                full ? "forward + gradients" : "forward", mhz / count, watts / count);
  }

  static void print(const Row& r) {
    std::printf("%-8s %5lld %-8s %-32s %8.3f ms [%8.3f %8.3f]  %.4f", r.inputs.c_str(),
                static_cast<long long>(r.tokens), r.pass.c_str(), r.label.c_str(),
                percentile(r.milliseconds, 0.5), percentile(r.milliseconds, 0.1),
                percentile(r.milliseconds, 0.9), percentile(r.ratio, 0.5));
    if (!r.ratio6.empty()) std::printf(" G6 %.4f", percentile(r.ratio6, 0.5));
    std::printf("  %7.1f MB", static_cast<double>(r.workspace) * 1e-6);
    if (!std::isnan(r.token_error)) std::printf("  token %.1e loss %.1e", r.token_error, r.loss_error);
    if (!std::isnan(r.input_grad_error))
      std::printf("  dX %.2e dW %.2e", r.input_grad_error, r.weight_grad_error);
    std::printf("%s\n", r.outputs_repeat ? "" : "  OUTPUTS DIFFER BETWEEN RUNS");
    std::fflush(stdout);
  }

  void write() const {
    if (a_.out.empty()) return;
    std::filesystem::create_directories(a_.out);
    const std::string gpu = ClockLog::query(0, "name"), driver = ClockLog::query(0, "driver_version");
    char timestamp[64];
    const std::time_t now = std::time(nullptr);
    std::strftime(timestamp, sizeof timestamp, "%Y-%m-%d %H:%M:%S", std::gmtime(&now));
    int runtime = 0;
    cudaRuntimeGetVersion(&runtime);
    json record{{"schema", 1},
                {"gpu", gpu},
                {"driver", driver},
                {"cuda_runtime", runtime},
                {"library_version", fljsd_version()},
                {"timestamp", timestamp},
                {"seed", a_.seed},
                {"vocab", a_.vocab},
                {"hidden", a_.hidden},
                {"beta", a_.beta},
                {"temperature", a_.temperature},
                {"tuned", a_.tune},
                {"clocks", clock_records_},
                {"rows", json::array()}};
    std::ofstream csv(a_.out + "/benchmark.csv");
    csv << "kernel_name,kernel_provider,kernel_operation_mode,metric_name,metric_unit,x_name,x_label,x_value,"
           "y_value_50,"
           "y_value_20,y_value_80,extra_benchmark_config_str,gpu_name,timestamp,liger_version\n";
    for (const Row& r : rows_) {
      const auto number = [](double value) { return std::isnan(value) ? json(nullptr) : json(value); };
      record["rows"].push_back(
          {{"inputs", r.inputs},
           {"tokens", r.tokens},
           {"pass", r.pass},
           {"variant", r.label},
           {"milliseconds", r.milliseconds},
           {"median_ms", percentile(r.milliseconds, 0.5)},
           {"p10_ms", percentile(r.milliseconds, 0.1)},
           {"p90_ms", percentile(r.milliseconds, 0.9)},
           {"median_ratio", percentile(r.ratio, 0.5)},
           {"median_ratio_g6", r.ratio6.empty() ? json(nullptr) : json(percentile(r.ratio6, 0.5))},
           {"workspace_bytes", r.workspace},
           {"loss", number(r.loss)},
           {"loss_error", number(r.loss_error)},
           {"largest_token_error", number(r.token_error)},
           {"input_grad_error", number(r.input_grad_error)},
           {"weight_grad_error", number(r.weight_grad_error)},
           {"outputs_repeat", r.outputs_repeat},
           {"plan", r.description}});
      const auto line = [&](const char* metric, const char* unit, double p50, double p20, double p80) {
        csv << "fused_linear_jsd,fljsd " << r.label << ',' << r.pass << ',' << metric << ',' << unit
            << ",BT,B x T," << r.tokens << ',' << p50 << ',' << p20 << ',' << p80
            << ",\"{\"\"H\"\": " << a_.hidden << ", \"\"V\"\": " << a_.vocab << ", \"\"inputs\"\": \"\""
            << r.inputs << "\"\", \"\"beta\"\": " << a_.beta << "}\"," << gpu << ',' << timestamp << ",\n";
      };
      line("speed", "ms", percentile(r.milliseconds, 0.5), percentile(r.milliseconds, 0.2),
           percentile(r.milliseconds, 0.8));
      const double megabytes = static_cast<double>(r.workspace) / (1 << 20);
      line("workspace", "MB", megabytes, megabytes, megabytes);
    }
    std::ofstream(a_.out + "/benchmark.json") << record.dump(1) << '\n';
  }

  Arguments a_;
  Index most_;
  Tensors tensors_;
  ClockLog clocks_;
  cudaStream_t stream_ = nullptr;
  std::vector<Row> rows_;
  json clock_records_ = json::array();
};

int main_or_throw(int argc, char** argv) {
  Arguments a;
  bool no_tune = false;
  CLI::App app("Times the stages on a GPU against the plain matrix products, and checks what they return.");
  app.add_option("--tokens", a.tokens, "token counts")->delimiter(',');
  app.add_option("--vocab", a.vocab, "vocabulary");
  app.add_option("--hidden", a.hidden, "hidden size of both models");
  app.add_option("--inputs", a.inputs, "uniform, normal, peaked")->delimiter(',');
  app.add_option("--variants", a.variants, "stage[:chunk_tokens:chunk_vocab:gradient_chunk_vocab]")
      ->delimiter(',');
  app.add_option("--passes", a.passes, "forward, full")->delimiter(',');
  app.add_option("--rounds", a.rounds,
                 "samples of each variant up to 2048 tokens; half as many (>= 10) beyond");
  app.add_option("--beta", a.beta, "in (0, 1)");
  app.add_option("--temperature", a.temperature, "> 0");
  app.add_option("--truth-tokens", a.truth_tokens, "compare with float64 truth up to this many tokens");
  app.add_option("--warm-up", a.warm_up, "seconds of matrix products before the samples");
  app.add_option("--seed", a.seed, "of the inputs");
  app.add_option("--out", a.out, "folder for benchmark.json and benchmark.csv");
  app.add_flag("--no-tune", no_tune, "use the first algorithm of cuBLASLt's heuristics");
  CLI11_PARSE(app, argc, argv);
  a.tune = !no_tune;
  if (fljsd_stage_available("gemm", -1) != FLJSD_OK) {
    std::printf("SKIPPED: %s\n", fljsd_last_error());
    return 0;
  }
  Benchmark(a).run();
  return 0;
}

}  // namespace
}  // namespace fljsd::bench

int main(int argc, char** argv) {
  try {
    return fljsd::bench::main_or_throw(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
