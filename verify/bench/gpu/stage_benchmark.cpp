// SPDX-License-Identifier: Apache-2.0
// The measurement behind run_bench(); bench.h says what the method is.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include <cuda_runtime_api.h>

#include "cuda/fljsd.h"
#include "reference/largest.h"
#include "verify/bench/bench.h"
#include "verify/bench/gpu/clock_log.h"
#include "verify/bench/gpu/fill.h"
#include "verify/bench/gpu/float64_truth.h"

namespace fljsd {
namespace bench {
namespace {

void check(cudaError_t error) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("CUDA reported ") + cudaGetErrorString(error) + ".");
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

// Device memory in use by everybody, as the device reports it.
Index memory_in_use() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total));
  return static_cast<Index>(total - free);
}

class Events {
 public:
  explicit Events(std::size_t count) : events_(count) {
    for (cudaEvent_t& event : events_) check(cudaEventCreate(&event));
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events() {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  void record(std::size_t i, cudaStream_t stream) const { check(cudaEventRecord(events_[i], stream)); }
  // From event i to the next one.
  double milliseconds(std::size_t i) const {
    float time = 0;
    check(cudaEventElapsedTime(&time, events_[i], events_[i + 1]));
    return static_cast<double>(time);
  }

 private:
  std::vector<cudaEvent_t> events_;
};

// "stage" or "stage:chunk_tokens:chunk_vocab:gradient_chunk_vocab"; 0 lets the stage choose.
struct Variant {
  std::string label, stage;
  Index chunks[3] = {0, 0, 0};

  explicit Variant(const std::string& text) : label(text), stage(text.substr(0, text.find(':'))) {
    std::size_t at = text.find(':');
    for (Index& chunk : chunks) {
      if (at == std::string::npos) return;
      const std::size_t end = std::min(text.find(':', at + 1), text.size());
      const std::string number = text.substr(at + 1, end - at - 1);
      if (number.empty() || number.size() > 12 || number.find_first_not_of("0123456789") != number.npos)
        refuse(number);
      chunk = std::stoll(number);
      at = text.find(':', at + 1);
    }
    if (at != std::string::npos) refuse(text.substr(at));
  }
  void refuse(const std::string& part) const {
    throw std::invalid_argument("stage is '" + label + "', where '" + part +
                                "' should be one of at most three whole numbers: chunk sizes.");
  }
};

class Plan {
 public:
  Plan(const BenchRequest& request, const Variant& v, Index tokens, bool gradients) {
    fljsd_config c;
    check(fljsd_config_init(&c, sizeof c));
    c.tokens = tokens;
    c.vocab = request.vocab;
    c.student_hidden = c.teacher_hidden = request.hidden;
    c.beta = request.beta;
    c.temperature = request.temperature;
    c.gradients = gradients ? FLJSD_STUDENT_INPUT_GRAD | FLJSD_STUDENT_WEIGHT_GRAD : 0;
    c.stage = v.stage.c_str();
    c.chunk_tokens = v.chunks[0];
    c.chunk_vocab = v.chunks[1];
    c.gradient_chunk_vocab = v.chunks[2];
    check(fljsd_plan_create(&c, &plan_));
  }
  Plan(Plan&& other) noexcept : plan_(std::exchange(other.plan_, nullptr)) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() { fljsd_plan_destroy(plan_); }
  fljsd_plan* get() const { return plan_; }

  Index workspace_bytes(fljsd_pass pass) const {
    std::uint64_t bytes = 0;
    check(fljsd_plan_workspace_bytes(plan_, pass, &bytes));
    return static_cast<Index>(bytes);
  }

 private:
  fljsd_plan* plan_ = nullptr;
};

// Whether the stage computes a loss at all: baselines do not.
bool has_loss(const std::string& name) {
  const std::vector<std::string> stages = bench_stages();
  return std::find(stages.begin(), stages.end(), name) != stages.end();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Inputs of the most tokens wanted, and gradients, in bf16; fewer tokens use the front of them.
struct Tensors {
  Memory student_input, student_weight, teacher_input, teacher_weight, input_grad, weight_grad;

  Tensors(Index tokens, Index vocab, Index hidden)
      : student_input(2 * tokens * hidden),
        student_weight(2 * vocab * hidden),
        teacher_input(2 * tokens * hidden),
        teacher_weight(2 * vocab * hidden),
        input_grad(2 * tokens * hidden),
        weight_grad(2 * vocab * hidden) {}

  void draw(Inputs family, std::uint64_t seed) const {
    fill_bf16(student_input.get(), student_input.bytes() / 2, family, false, seed);
    fill_bf16(teacher_input.get(), teacher_input.bytes() / 2, family, false, seed + 1);
    fill_bf16(student_weight.get(), student_weight.bytes() / 2, family, true, seed + 2);
    fill_bf16(teacher_weight.get(), teacher_weight.bytes() / 2, family, true, seed + 3);
    check(cudaDeviceSynchronize());
  }
  void poison_gradients() const {
    poison(input_grad.get(), input_grad.bytes());
    poison(weight_grad.get(), weight_grad.bytes());
  }
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

// Losses of every run of every variant, each in its own place, so that all can be compared afterwards.
class Losses {
 public:
  Losses(std::size_t variants, int rounds, Index tokens)
      : runs_(static_cast<std::size_t>(rounds) + 1),
        tokens_(static_cast<std::size_t>(tokens)),
        loss_(static_cast<Index>(4 * variants * runs_)),
        token_loss_(static_cast<Index>(4 * variants * runs_ * tokens_)) {
    poison(loss_.get(), loss_.bytes());
    poison(token_loss_.get(), token_loss_.bytes());
  }
  float* loss(std::size_t variant, std::size_t run) const {
    return static_cast<float*>(loss_.get()) + (variant * runs_ + run);
  }
  float* token_loss(std::size_t variant, std::size_t run) const {
    return static_cast<float*>(token_loss_.get()) + (variant * runs_ + run) * tokens_;
  }
  float host_loss(std::size_t variant) const { return to_host(loss(variant, 0), 1)[0]; }
  std::vector<float> host_token_loss(std::size_t variant, std::size_t run) const {
    return to_host(token_loss(variant, run), tokens_);
  }
  bool all_runs_agree(std::size_t variant) const {
    const std::vector<float> want = host_token_loss(variant, 0);
    for (std::size_t run = 1; run < runs_; ++run) {
      const std::vector<float> got = host_token_loss(variant, run);
      if (std::memcmp(got.data(), want.data(), want.size() * sizeof(float)) != 0) return false;
    }
    return true;
  }

 private:
  static std::vector<float> to_host(const float* data, std::size_t count) {
    std::vector<float> host(count);
    check(cudaMemcpy(host.data(), data, count * sizeof(float), cudaMemcpyDeviceToHost));
    return host;
  }

  std::size_t runs_, tokens_;
  Memory loss_, token_loss_;
};

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }
  void wait() const { check(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

class Benchmark {
 public:
  Benchmark(const BenchRequest& request, const std::function<void(const std::string&)>& on_step,
            const std::function<void(const BenchRow&)>& on_row)
      : request_(request),
        on_step_(on_step),
        on_row_(on_row),
        most_(*std::max_element(request.tokens.begin(), request.tokens.end())),
        tensors_(most_, request.vocab, request.hidden),
        clocks_(0) {
    variants_.emplace_back("gemm");  // the baseline goes first
    for (const std::string& text : request.variants) variants_.emplace_back(text);
  }

  BenchRecord run() {
    record_.gpu = find_gpu();
    record_.gpu.driver = clocks_.driver();
    record_.vocab = request_.vocab;
    record_.hidden = request_.hidden;
    record_.beta = request_.beta;
    record_.temperature = request_.temperature;
    record_.tuned = request_.tune;
    record_.clock_source = clocks_.source();
    for (const std::string& inputs : request_.inputs) {
      on_step_("drawing " + inputs + " inputs");
      tensors_.draw(parse_inputs(inputs), request_.seed);
      for (const Index tokens : request_.tokens) {
        std::optional<Float64Truth> truth;
        if (tokens <= request_.truth_tokens && request_.beta > 0 && request_.beta < 1) {
          on_step_("computing float64 truth");
          truth.emplace(TruthProblem{tokens, request_.vocab, request_.hidden, tensors_.student_input.get(),
                                     tensors_.student_weight.get(), tensors_.teacher_input.get(),
                                     tensors_.teacher_weight.get(), request_.beta, request_.temperature});
        }
        for (const std::string& pass : request_.passes)
          measure(inputs, tokens, pass, truth ? &*truth : nullptr);
      }
    }
    return std::move(record_);
  }

 private:
  // All variants on one family, size and pass.
  void measure(const std::string& inputs, Index tokens, const std::string& pass_name,
               const Float64Truth* truth) {
    const fljsd_pass pass = pass_name == "full" ? FLJSD_FORWARD_BACKWARD : FLJSD_FORWARD;
    const int rounds = tokens <= 2048 ? request_.rounds : std::max(10, request_.rounds / 2);
    const Losses losses(variants_.size(), rounds, tokens);
    std::vector<Plan> plans;
    std::vector<BenchRow> rows;
    Index workspace_bytes = 0;
    for (std::size_t i = 0; i < variants_.size(); ++i) {
      on_step_(variants_[i].label + ": choosing algorithms and checking");
      BenchRow row;
      row.inputs = inputs, row.tokens = tokens, row.pass = pass_name, row.variant = variants_[i].label;
      const Index before = memory_in_use();
      plans.emplace_back(request_, variants_[i], tokens, pass == FLJSD_FORWARD_BACKWARD);
      row.workspace_bytes = plans.back().workspace_bytes(pass);
      workspace_bytes = std::max(workspace_bytes, row.workspace_bytes);
      run_checked(plans.back(), i, losses, row, pass, before, truth);
      rows.push_back(std::move(row));
    }

    const Memory workspace(workspace_bytes);
    on_step_(inputs + ": timing " + std::to_string(tokens) + " tokens, " + pass_name);
    const auto enqueue = [&](std::size_t variant, fljsd_pass which, std::size_t run) {
      const fljsd_tensors t = tensors_.of_call(losses.loss(variant, run), losses.token_loss(variant, run));
      enqueue_call(plans[variant], which, t, workspace);
    };
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() <
           request_.warm_up) {
      for (int i = 0; i < 3; ++i) enqueue(0, pass, 0);
      stream_.wait();
    }
    clocks_.take();
    // With gradients the baseline's forward pass takes a turn too: G6 = G4 + G2.
    const bool times_g2 = pass == FLJSD_FORWARD_BACKWARD;
    const std::size_t slots = variants_.size() + (times_g2 ? 1 : 0);
    const Events events(2 * static_cast<std::size_t>(rounds) * slots);  // start and end of every sample
    std::size_t next = 0;
    for (int round = 1; round <= rounds; ++round) {
      for (std::size_t slot = 0; slot < slots; ++slot) {
        if (request_.pause > 0) {
          stream_.wait();
          std::this_thread::sleep_for(std::chrono::duration<double>(request_.pause));
        }
        events.record(next++, stream_.get());
        if (slot < variants_.size()) {
          enqueue(slot, pass, static_cast<std::size_t>(round));
        } else {
          enqueue(0, FLJSD_FORWARD, static_cast<std::size_t>(round));
        }
        events.record(next++, stream_.get());
      }
    }
    stream_.wait();
    record_clocks(inputs, tokens, pass_name);
    for (std::size_t i = 0; i < variants_.size(); ++i) {
      BenchRow& row = rows[i];
      std::vector<double> ratio, ratio_g6;
      for (int round = 0; round < rounds; ++round) {
        const auto milliseconds = [&](std::size_t slot) {
          return events.milliseconds(2 * (static_cast<std::size_t>(round) * slots + slot));
        };
        const double time = milliseconds(i), base = milliseconds(0);
        row.milliseconds.push_back(time);
        ratio.push_back(time / base);
        if (times_g2) ratio_g6.push_back(time / (base + milliseconds(variants_.size())));
      }
      row.median_ratio = median(ratio);
      if (times_g2) row.median_ratio_g6 = median(ratio_g6);
      if (!row.is_baseline()) row.outputs_repeat = losses.all_runs_agree(i);
      on_row_(row);
      record_.rows.push_back(row);
    }
  }

  // Chooses algorithms, then runs once from poisoned memory and compares with the truth.
  void run_checked(const Plan& plan, std::size_t i, const Losses& losses, BenchRow& row, fljsd_pass pass,
                   Index memory_before, const Float64Truth* truth) {
    const Memory workspace(row.workspace_bytes);
    const fljsd_tensors t = tensors_.of_call(losses.loss(i, 0), losses.token_loss(i, 0));
    if (request_.tune) {
      check(fljsd_plan_tune(plan.get(), pass, &t, workspace.get(),
                            static_cast<std::uint64_t>(workspace.bytes()), stream_.get()));
    }
    row.plan = fljsd_plan_describe(plan.get());
    row.baseline = baseline_of(row);
    poison(workspace.get(), workspace.bytes());
    tensors_.poison_gradients();
    poison(losses.loss(i, 0), 4);
    poison(losses.token_loss(i, 0), 4 * row.tokens);
    check(cudaDeviceSynchronize());
    enqueue_call(plan, pass, t, workspace);
    stream_.wait();
    row.device_bytes = memory_in_use() - memory_before;
    if (truth == nullptr || !has_loss(variants_[i].stage)) return;
    const std::vector<float> got = losses.host_token_loss(i, 0);
    double largest = 0, mean = 0;
    for (std::size_t token = 0; token < got.size(); ++token) {
      const double want = truth->token_loss()[token];
      largest = larger_or_nan(largest, std::abs(static_cast<double>(got[token]) - want));
      mean += want / static_cast<double>(got.size());
    }
    row.largest_token_error = largest;
    row.loss = static_cast<double>(losses.host_loss(i));
    row.loss_error = std::abs(*row.loss - mean);
    if (pass == FLJSD_FORWARD) return;
    row.input_grad_error = truth->input_grad_error(tensors_.input_grad.get());
    row.weight_grad_error = truth->weight_grad_error(tensors_.weight_grad.get());
  }

  void enqueue_call(const Plan& plan, fljsd_pass pass, const fljsd_tensors& t,
                    const Memory& workspace) const {
    const auto bytes = static_cast<std::uint64_t>(workspace.bytes());
    check(pass == FLJSD_FORWARD
              ? fljsd_forward(plan.get(), &t, workspace.get(), bytes, stream_.get())
              : fljsd_forward_backward(plan.get(), &t, workspace.get(), bytes, stream_.get()));
  }

  void record_clocks(const std::string& inputs, Index tokens, const std::string& pass) {
    ClockRow row{inputs, pass, tokens, 0, 0, 0, 0};
    for (const ClockSample& s : clocks_.take()) {
      ++row.samples;
      row.mean_sm_mhz += s.sm_mhz;
      row.mean_watts += s.watts;
      row.highest_celsius = std::max(row.highest_celsius, s.celsius);
    }
    if (row.samples > 0) row.mean_sm_mhz /= row.samples, row.mean_watts /= row.samples;
    record_.clocks.push_back(row);
  }

  const BenchRequest& request_;
  const std::function<void(const std::string&)>& on_step_;
  const std::function<void(const BenchRow&)>& on_row_;
  Index most_;
  Tensors tensors_;
  ClockLog clocks_;
  Stream stream_;
  std::vector<Variant> variants_;
  BenchRecord record_;
};

}  // namespace
}  // namespace bench

std::vector<std::string> bench_inputs() {
  std::vector<std::string> names;
  for (const bench::Inputs inputs : {bench::Inputs::uniform, bench::Inputs::normal, bench::Inputs::peaked})
    names.emplace_back(bench::name(inputs));
  return names;
}

std::vector<std::string> bench_stages() {
  std::vector<std::string> names;
  for (int i = 0; i < fljsd_stage_count(); ++i) {
    fljsd_stage stage{};
    stage.struct_size = sizeof stage;
    if (fljsd_stage_get(i, &stage) == FLJSD_OK && stage.is_baseline == 0) names.emplace_back(stage.name);
  }
  return names;
}

std::string why_no_gpu() {
  return fljsd_stage_available("gemm", -1) == FLJSD_OK ? "" : fljsd_last_error();
}

GpuInfo find_gpu() {
  int device = 0;
  cudaDeviceProp p{};
  bench::check(cudaGetDevice(&device));
  bench::check(cudaGetDeviceProperties(&p, device));
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    return cudaDeviceGetAttribute(&value, which, device) == cudaSuccess ? static_cast<double>(value) : 0.0;
  };
  GpuInfo gpu;
  gpu.name = p.name;
  bench::check(cudaRuntimeGetVersion(&gpu.cuda_runtime));
  gpu.capability = 10 * p.major + p.minor;
  gpu.multiprocessors = p.multiProcessorCount;
  gpu.clock_hz = 1e3 * attribute(cudaDevAttrClockRate);
  // Two transfers a clock, each as wide as the bus.
  gpu.memory_bandwidth =
      2 * 1e3 * attribute(cudaDevAttrMemoryClockRate) * attribute(cudaDevAttrGlobalMemoryBusWidth) / 8;
  gpu.memory_bytes = static_cast<std::int64_t>(p.totalGlobalMem);
  return gpu;
}

BenchRecord run_bench(const BenchRequest& request, const std::function<void(const std::string&)>& on_step,
                      const std::function<void(const BenchRow&)>& on_row) {
  return bench::Benchmark(request, on_step, on_row).run();
}

}  // namespace fljsd
