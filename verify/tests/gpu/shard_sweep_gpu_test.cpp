// SPDX-License-Identifier: Apache-2.0
// Shards of the vocabulary swept one after the other on one GPU, from the sources, and merged as ranks merge
// them: so every cut is tried without a second GPU, and which of the two sweeps did it is known.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "cuda/shard_kernels.h"
#include "cuda/shard_sweep.h"
#include "reference/shards.h"
#include "verify/tests/gpu/gpu_case.h"

namespace fljsd::testing {
namespace {

namespace cu = fljsd::cuda;

// A problem on the device. Losses by token only: the reduced loss is finished elsewhere.
class Shards {
 public:
  // `offset`: bytes after a multiple of 256 at which tensors start.
  explicit Shards(const HostCase& host, std::size_t offset = 0) : host_(host) {
    const auto upload = [&](const std::vector<std::byte>& bytes) -> const std::byte* {
      return inputs_.emplace_back(bytes, offset).get();
    };
    inputs_.reserve(8);
    student_input_ = upload(host.student_input.bytes), student_weight_ = upload(host.student_weight.bytes);
    teacher_input_ = upload(host.teacher_input.bytes), teacher_weight_ = upload(host.teacher_weight.bytes);
    if (host.student_bias) student_bias_ = upload(host.student_bias->bytes);
    if (host.teacher_bias) teacher_bias_ = upload(host.teacher_bias->bytes);
    if (host.labels) {
      std::vector<std::byte> bytes(host.labels->size() * sizeof(std::int64_t));
      std::memcpy(bytes.data(), host.labels->data(), bytes.size());
      labels_ = inputs_.emplace_back(bytes).as<std::int64_t>();
    }
    const Problem problem = host.problem();
    settings_ = cu::check_config(config_of(problem, host.recipe.options, problem.student_input.dtype, false));
    statistics_ = cu::OnePassStatistics(settings_);
  }

  // `configure(rank, settings)` changes what a rank asks for.
  using ConfigureRank = std::function<void(int, cu::Settings&)>;

  StageResult losses(const std::vector<Shard>& shards, const ConfigureRank& configure = {}) {
    constexpr fljsd_pass pass = FLJSD_FORWARD;
    const Index tokens = settings_.tokens, floats = statistics_.record_floats(pass);
    const auto ranks = static_cast<Index>(shards.size());
    const auto bytes = [](Index count) { return static_cast<std::size_t>(count) * sizeof(float); };
    const DeviceBuffer records(bytes(ranks * tokens * floats)), merged(bytes(tokens * floats)),
        token_loss(bytes(tokens));
    descriptions.clear();
    for (Index r = 0; r < ranks; ++r) {
      const Shard& shard = shards[static_cast<std::size_t>(r)];
      float* out = records.as<float>() + r * tokens * floats;
      cu::Settings s = settings_;
      s.vocab = shard.size;
      s.valid_vocab = std::clamp<Index>(settings_.valid_vocab - shard.first, 0, shard.size);
      if (configure) configure(static_cast<int>(r), s);
      if (s.valid_vocab == 0) {
        cu::launch_empty_records(nullptr, statistics_.kind, cu::basis_of(pass), tokens, out);
      } else {
        sweep(s, call_of(shard), out);
      }
    }
    const cu::Ignored ignored{labels_, settings_.ignore_index};
    cu::launch_merge_records(nullptr, statistics_.kind, cu::basis_of(pass), statistics_.mixture,
                             statistics_.weights[pass].phase_step,
                             {records.as<float>(), ranks, floats, tokens * floats}, tokens, ignored,
                             merged.as<float>());
    statistics_.finish(nullptr, pass, {merged.as<float>(), 1}, tokens, ignored, token_loss.as<float>(),
                       nullptr);
    check_cuda(cudaDeviceSynchronize());
    StageResult result;
    result.token_loss.resize(static_cast<std::size_t>(tokens));
    std::memcpy(result.token_loss.data(), token_loss.to_host().data(), bytes(tokens));
    return result;
  }

  std::vector<std::string> descriptions;  // of the last sweeps, without ranks that have no entries

 private:
  cu::Call call_of(const Shard& shard) const {
    const auto from = [&](const std::byte* tensor, fljsd_dtype dtype, Index row) -> const std::byte* {
      return tensor == nullptr ? nullptr : tensor + shard.first * row * cu::size_of(dtype);
    };
    const cu::Model &student = settings_.student, &teacher = settings_.teacher;
    cu::Call call{};
    call.tensors.student_input = student_input_;
    call.tensors.teacher_input = teacher_input_;
    call.tensors.student_weight = from(student_weight_, student.dtype, student.weight_ld);
    call.tensors.teacher_weight = from(teacher_weight_, teacher.dtype, teacher.weight_ld);
    call.tensors.student_bias = from(student_bias_, student.bias_dtype, 1);
    call.tensors.teacher_bias = from(teacher_bias_, teacher.bias_dtype, 1);
    call.tensors.labels = labels_;
    return call;
  }

  void sweep(const cu::Settings& s, cu::Call call, float* out) {
    cu::ShardSweep sweep(s, statistics_);
    const auto lay_out = [&](cu::Workspace& workspace, const cu::Call* filled) {
      const cu::BatchArrays batch = cu::begin_batch(s, FLJSD_FORWARD, workspace, filled);
      return std::pair{batch, sweep.lay_out(FLJSD_FORWARD, workspace)};
    };
    const auto needed = [&](fljsd_pass) {
      cu::Workspace measure(nullptr);
      lay_out(measure, nullptr);
      return measure.used();
    };
    sweep.prepare(needed);
    const DeviceBuffer memory(static_cast<std::size_t>(needed(FLJSD_FORWARD)));
    call.workspace = memory.get();
    cu::Workspace workspace(call.workspace);
    const auto [batch, arrays] = lay_out(workspace, &call);
    sweep.run_sums(FLJSD_FORWARD, call, batch, arrays, out);
    check_cuda(cudaDeviceSynchronize());
    descriptions.push_back(sweep.describe());
  }

  HostCase host_;
  std::vector<DeviceBuffer> inputs_;
  const std::byte *student_input_ = nullptr, *student_weight_ = nullptr, *student_bias_ = nullptr;
  const std::byte *teacher_input_ = nullptr, *teacher_weight_ = nullptr, *teacher_bias_ = nullptr;
  const std::int64_t* labels_ = nullptr;
  cu::Settings settings_;
  cu::OnePassStatistics statistics_;
};

std::vector<Shard> shards_of(const std::vector<Index>& sizes) {
  std::vector<Shard> shards;
  Index first = 0;
  for (const Index size : sizes) shards.push_back({first, size}), first += size;
  return shards;
}

bool has_fused_sweep() {
  Recipe r;
  r.pad = 8;
  const DeviceCase device(make_case(r), "fused", false);
  return std::string(fljsd_plan_describe(device.plan())).find("forward: fused sweep") != std::string::npos;
}
bool is_fused(const std::string& description) {
  return description.find("forward: fused sweep of tiles") == 0;
}

// Against float64 truth, and every rank by the sweep that is meant.
void check(Shards& device, const HostCase& host, const std::vector<Index>& sizes, bool fused,
           const Shards::ConfigureRank& configure = {}) {
  expect_close(device.losses(shards_of(sizes), configure), host, "fused");
  for (const std::string& description : device.descriptions)
    EXPECT_EQ(is_fused(description), fused) << description;
}

Recipe rows_of_eight(Index tokens, Index vocab) {
  Recipe r;
  r.tokens = tokens, r.vocab = vocab;
  r.student_hidden = 17, r.teacher_hidden = 65, r.pad = 7;  // rows of 24 and 72
  r.options.reduction = Reduction::none;
  return r;
}

// Fault: records of a group or slot put in another's place, tails of a shard's last tile or of the tokens,
// entries past valid_vocab counted, an empty shard's record that adds something.
TEST(ShardSweep, AnyCut) {
  if (!has_fused_sweep()) GTEST_SKIP() << "The fused sweep does not run on this GPU.";
  for (const Index tokens : {1, 130, 700, 1800}) {  // one group of tokens, two of them
    Recipe r = rows_of_eight(tokens, 1283);
    r.options.valid_vocab = 1203;
    r.ignored = tokens == 130 ? 0.5 : 0;
    for (const double beta : {0.3, 0.0, 1.0}) {
      r.options.beta = beta;
      const HostCase host = make_case(r);
      Shards device(host);
      std::vector<std::vector<Index>> cuts{{159, 160, 161, 1, 0, 320, 402, 80}};
      if (tokens < 200) {
        for (const auto& more :
             {std::vector<Index>{1283}, {641, 642}, {1, 1282}, {0, 0, 1203, 80}, {1202, 1, 80}})
          cuts.push_back(more);
      }
      for (const std::vector<Index>& sizes : cuts) check(device, host, sizes, true);
    }
  }
}

// Fault: rows that the fast kernel marks are merged before the general one has done them again.
TEST(ShardSweep, MarkedRows) {
  if (!has_fused_sweep()) GTEST_SKIP() << "The fused sweep does not run on this GPU.";
  for (const double step : {8.0, 60.0, 10000.0}) {
    for (const double beta : {0.5, 0.99, 0.0, 1.0}) {
      Recipe r = rows_of_eight(5, 4000);
      r.options.beta = beta;
      HostCase host = make_case(r);
      for (Index t = 0; t < r.tokens; ++t) {
        for (Index h = 0; h < 65; ++h) {
          if (h < 17) host.student_input.set(t, h, h == 0);
          host.teacher_input.set(t, h, h == 0);
        }
      }
      for (Index v = 0; v < r.vocab; ++v) {  // logits are the first column: exact
        host.student_weight.set(v, 0, static_cast<double>(v / 160) * step + static_cast<double>(v % 3));
        host.teacher_weight.set(v, 0,
                                static_cast<double>((v + 80) / 160) * step - static_cast<double>(v % 5));
      }
      Shards device(host);
      check(device, host, {2000, 2000}, true);
      check(device, host, {1500, 7, 2493}, true);
    }
  }
}

// Fault: NaN from -inf less -inf where a model gives a whole shard no probability.
TEST(ShardSweep, ShardsWithoutProbability) {
  if (!has_fused_sweep()) GTEST_SKIP() << "The fused sweep does not run on this GPU.";
  for (const double beta : {0.5, 0.0, 1.0}) {
    for (const bool teacher : {false, true}) {
      Recipe r = rows_of_eight(70, 600);
      r.options.beta = beta;
      (teacher ? r.teacher_bias : r.student_bias) = DType::f32;
      HostCase host = make_case(r);
      HostMatrix& bias = teacher ? *host.teacher_bias : *host.student_bias;
      for (Index v = 0; v < 200; ++v) bias.set(0, v, -std::numeric_limits<double>::infinity());
      Shards device(host);
      check(device, host, {200, 400}, true);
      check(device, host, {100, 300, 200}, true);
    }
  }
}

// Fault: a rank whose operands the fused sweep cannot read is given to it all the same, or its records do not
// fit those of ranks that have another sweep.
TEST(ShardSweep, OtherSweepsForOtherRanks) {
  Recipe r = rows_of_eight(300, 900);
  const HostCase host = make_case(r);
  const auto tiles = [](int rank, cu::Settings& s) { s.chunk_vocab = rank % 2 == 0 ? 128 : 0; };
  Shards aligned(host);
  expect_close(aligned.losses(shards_of({400, 300, 200}), tiles), host, "fused");
  ASSERT_EQ(aligned.descriptions.size(), 3u);
  EXPECT_NE(aligned.descriptions[0].find("because its tiles were asked for"), std::string::npos);
  EXPECT_EQ(is_fused(aligned.descriptions[1]), has_fused_sweep());

  Shards unaligned(host, 2);  // which only a call can know
  check(unaligned, host, {400, 500}, has_fused_sweep());
  r.pad = 6;
  const HostCase odd = make_case(r);
  Shards rows(odd);
  check(rows, odd, {400, 500}, false);
}

// Fault: references or phases of a shard that are lost on the way. The stage's logits have the same bits, and
// so have the rule's weights; either side's sums err by 1.5e-6 in D (one_pass_moments.cuh).
TEST(ShardSweep, GivesTheLossesOfOneGpu) {
  if (!has_fused_sweep()) GTEST_SKIP() << "The fused sweep does not run on this GPU.";
  for (const double beta : {0.5, 0.05}) {
    for (const double gap : {0.0, 0.5}) {
      Recipe r = rows_of_eight(513, 5000);
      r.options.beta = beta;
      r.values = gap > 0 ? Recipe::Values::near : Recipe::Values::normal, r.gap = gap;
      const HostCase host = make_case(r);
      const StageResult whole = DeviceCase(host, "fused", false).run();
      Shards device(host);
      for (const std::vector<Index>& sizes : {std::vector<Index>{2500, 2500}, {17, 1000, 160, 3823}}) {
        const StageResult cut = device.losses(shards_of(sizes));
        for (std::size_t t = 0; t < whole.token_loss.size(); ++t) {
          const double difference =
              std::abs(static_cast<double>(cut.token_loss[t]) - static_cast<double>(whole.token_loss[t]));
          EXPECT_TRUE(difference <= 3e-6) << "token " << t << ": " << difference;
        }
      }
    }
  }
}

// Fault: records that memory_budget has no room for.
TEST(ShardSweep, KeepsABudget) {
  if (!has_fused_sweep()) GTEST_SKIP() << "The fused sweep does not run on this GPU.";
  Recipe r = rows_of_eight(1, 1);
  const HostCase host = make_case(r);
  const Problem problem = host.problem();
  cu::Settings s = cu::check_config(config_of(problem, r.options, DType::bf16, false));
  s.tokens = 8192, s.vocab = s.valid_vocab = 12000;
  for (const Index budget : {20'000'000, 200'000'000}) {
    s.memory_budget = budget;
    cu::ShardSweep sweep(s, cu::OnePassStatistics(s));
    const auto needed = [&](fljsd_pass pass) {
      cu::Workspace measure(nullptr);
      sweep.lay_out(pass, measure);
      return measure.used();
    };
    sweep.prepare(needed);
    EXPECT_LE(needed(FLJSD_FORWARD), budget);
    EXPECT_EQ(is_fused(sweep.describe()), budget == 200'000'000) << sweep.describe();
  }
}

}  // namespace
}  // namespace fljsd::testing
