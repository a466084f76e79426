// SPDX-License-Identifier: Apache-2.0
// Distributed plans without a GPU: who comes to which exchange, and what ranks make of each other's failures.
// A thread for each rank, over the stand-in for NCCL, on streams that the host plays. A shard's sweep and all
// kernels are played too: they compute nothing, or fail where a test says so.
#include <barrier>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/distributed.h"
#include "cuda/fljsd_distributed.h"
#include "cuda/shard_kernels.h"
#include "cuda/shard_sweep.h"
#include "verify/tests/gpu/streams_on_host.h"

namespace {

// What goes wrong on the calling rank.
thread_local bool cannot_make_its_sweep = false, fails_in_its_sweep = false, is_captured = false;

}  // namespace

// ---- the CUDA runtime, beyond streams_on_host.cpp ----

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 2;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "a host");
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int*) {
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int*) {
  return cudaSuccess;
}
cudaError_t cudaPeekAtLastError() {
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = is_captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaMemset2DAsync(void*, std::size_t, int, std::size_t, std::size_t, cudaStream_t) {
  return cudaSuccess;
}

}  // extern "C"

namespace fljsd::cuda {

// ---- stages, kernels and sweeps ----

std::span<const StageEntry> stages() {
  return {};
}
const StageEntry& find_stage(const std::string& name) {
  static const StageEntry entry{"chunked-vocab", "", false, FLJSD_F32, 0, any_newer, nullptr};
  if (name != entry.name) fail(FLJSD_INVALID_ARGUMENT, "The host has no such stage.");
  return entry;
}
void require_device(const StageEntry&, const Device&) {}

Index state_floats(Divergence, Basis) {
  return 9;
}
OnePassWeights make_one_pass_weights(double, Basis) {
  return {};
}
void launch_finish(cudaStream_t, Divergence, Basis, const Mixture&, const OnePassWeights&,
                   const OnePassState&, Index, Ignored, float*, RowConstants*) {}
void launch_count(cudaStream_t, Ignored, Index, double, DeviceScalars*) {}
void launch_reduce(cudaStream_t, const float*, Ignored, Index, bool, float*) {}
void launch_to_float(cudaStream_t, const void*, fljsd_dtype, Index, float*) {}
void launch_masked_copy(cudaStream_t, const void*, fljsd_dtype, Index, Index, Index, Ignored, void*) {}
void launch_clear_ignored(cudaStream_t, Index, Index, void*, fljsd_dtype, Index, Ignored) {}
void launch_round(cudaStream_t, const float*, Index, Index, void*, fljsd_dtype, Index) {}
void launch_merge_records(cudaStream_t, Divergence, Basis, const Mixture&, float, const RecordGrid&, Index,
                          Ignored, float*) {}
void launch_empty_records(cudaStream_t, Divergence, Basis, Index, float*) {}
void launch_combined_factor(cudaStream_t, const Tally*, Index, double, DeviceScalars*) {}

// Every token of a rank counts, and has a loss of 1; the loss is their number.
void launch_tally(cudaStream_t stream, const float*, Ignored, Index tokens, Tally* out) {
  host_streams::enqueue(stream, [=] { *out = {static_cast<double>(tokens), static_cast<double>(tokens)}; });
}
void launch_combined_loss(cudaStream_t stream, const Tally* tallies, Index ranks, bool, float* loss) {
  host_streams::enqueue(stream, [=] {
    *loss = 0;
    for (Index r = 0; r < ranks; ++r) *loss += static_cast<float>(tallies[r].loss);
  });
}

ShardSweep::ShardSweep(const Settings& s, const OnePassStatistics& statistics)
    : settings_(s), statistics_(statistics) {}
void ShardSweep::prepare(const std::function<Index(fljsd_pass)>&) {
  if (cannot_make_its_sweep) fail(FLJSD_WORKSPACE_TOO_SMALL, "This rank has no room.");
}
ShardSweep::Arrays ShardSweep::lay_out(fljsd_pass, Workspace&) const {
  return {};
}
void ShardSweep::run_sums(fljsd_pass, const Call&, const BatchArrays&, const Arrays&, float*) const {
  if (fails_in_its_sweep) fail(FLJSD_CUDA_ERROR, "A kernel of this rank was not launched.");
}
void ShardSweep::tune(fljsd_pass, const Call&, const BatchArrays&, const Arrays&) {}
std::string ShardSweep::describe() const {
  return "";
}
void TiledSweep::run_gradients(const Call&, const BatchArrays&, const Arrays&, bool) const {}

namespace {

constexpr std::int64_t long_enough = 120'000;

struct Id {
  char bytes[FLJSD_COMMUNICATOR_ID_BYTES];
};
Id new_id() {
  Id id;
  EXPECT_EQ(fljsd_communicator_id(id.bytes), FLJSD_OK) << fljsd_last_error();
  return id;
}

struct Answer {
  fljsd_status status;
  std::string sentence;
};

// One rank of a grid: what it has and does, on a thread of its own.
class Rank {
 public:
  int number = 0, shard = 0, part = 0;
  fljsd_ranks groups{};
  fljsd_config config{};
  fljsd_plan* plan = nullptr;

  Answer make(const fljsd_config* with) {
    fljsd_plan_destroy(plan);
    return answer(fljsd_plan_create_distributed(with, &groups, &plan));
  }
  Answer make() { return make(&config); }
  // What a pass needs, or tuning does.
  template <class Call>
  Answer call(const Call& pass) {
    std::uint64_t bytes = 0;
    EXPECT_EQ(fljsd_plan_workspace_bytes(plan, FLJSD_FORWARD, &bytes), FLJSD_OK) << fljsd_last_error();
    if (room_.size() < bytes + 256) room_.resize(bytes + 256);
    const auto address = reinterpret_cast<std::uintptr_t>(room_.data());
    fljsd_tensors t{};
    t.struct_size = sizeof t;
    t.student_input = t.teacher_input = t.student_weight = t.teacher_weight = &config;  // nobody reads them
    t.loss = &loss;
    const Answer enqueued =
        answer(pass(&t, reinterpret_cast<void*>((address + 255) / 256 * 256), bytes, stream_));
    if (enqueued.status != FLJSD_OK) return enqueued;
    return answer(fljsd_plan_wait(plan, stream_, long_enough));
  }
  Answer forward() {
    return call([&](const fljsd_tensors* t, void* room, std::uint64_t bytes, void* stream) {
      return fljsd_forward(plan, t, room, bytes, stream);
    });
  }
  Answer tune() {
    return call([&](const fljsd_tensors* t, void* room, std::uint64_t bytes, void* stream) {
      return fljsd_plan_tune(plan, FLJSD_FORWARD, t, room, bytes, stream);
    });
  }
  float loss = -1;

  Rank() {
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    EXPECT_EQ(fljsd_config_init(&config, sizeof config), FLJSD_OK);
    config.tokens = 2;
    config.vocab = 10;
    config.student_hidden = config.teacher_hidden = 4;
    config.beta = 0;
    groups.struct_size = sizeof groups;
  }
  ~Rank() {
    cudaStreamSynchronize(stream_);  // what is enqueued uses memory of this rank
    fljsd_plan_destroy(plan);
    fljsd_communicator_destroy(groups.vocab);
    fljsd_communicator_destroy(groups.tokens);
    cudaStreamDestroy(stream_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

 private:
  static Answer answer(fljsd_status status) { return {status, fljsd_last_error()}; }
  cudaStream_t stream_ = nullptr;
  std::vector<std::byte> room_;
};

// Rank r has shard r mod `vocab` and tokens r div `vocab`.
void on_grid(int vocab, int tokens, const std::function<void(Rank&)>& body) {
  std::vector<Id> of_part, of_shard;
  for (int i = 0; i < tokens; ++i) of_part.push_back(new_id());
  for (int i = 0; i < vocab; ++i) of_shard.push_back(new_id());
  std::vector<std::thread> threads;
  for (int number = 0; number < vocab * tokens; ++number) {
    threads.emplace_back([&, number] {
      Rank rank;
      rank.number = number, rank.shard = number % vocab, rank.part = number / vocab;
      const auto join = [&](const std::vector<Id>& ids, int group, int ranks, int place, auto** to) {
        if (ranks == 1) return;
        ASSERT_EQ(fljsd_communicator_create(ids[static_cast<std::size_t>(group)].bytes, ranks, place,
                                            long_enough, to),
                  FLJSD_OK)
            << fljsd_last_error();
      };
      join(of_part, rank.part, vocab, rank.shard, &rank.groups.vocab);
      join(of_shard, rank.shard, tokens, rank.part, &rank.groups.tokens);
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Every rank hears one of two sentences, and the communicators serve the next plan.
void expect_refusal(Rank& rank, const Answer& made) {
  EXPECT_NE(made.status, FLJSD_OK) << rank.number;
  EXPECT_NE(made.status, FLJSD_COMMUNICATION_ERROR) << rank.number << ": " << made.sentence;
  EXPECT_EQ(rank.plan, nullptr);
  const Answer again = rank.make();
  EXPECT_EQ(again.status, FLJSD_OK) << rank.number << ": " << again.sentence;
  EXPECT_EQ(rank.forward().status, FLJSD_OK) << rank.number;
}

// Fault: in a grid, a rank hears of a refusal in one group and does not come to the other one's comparison,
// whose ranks wait for their time limit and lose their communicator.
TEST(DistributedPlan, AllOfAGridHearThatARankCannotMakeItsPart) {
  for (int which = 0; which < 4; ++which) {
    on_grid(2, 2, [&](Rank& rank) {
      cannot_make_its_sweep = rank.number == which;
      const Answer made = rank.make();
      cannot_make_its_sweep = false;
      if (rank.number == which) {
        EXPECT_EQ(made.sentence, "This rank has no room.");
      }
      expect_refusal(rank, made);
    });
  }
}

// Fault: the same where only the ranks of one token group differ.
TEST(DistributedPlan, AllOfAGridHearOfADifferenceWithinOneGroup) {
  on_grid(2, 2, [](Rank& rank) {
    rank.groups.sum_weight_gradients = rank.number == 3;
    const Answer made = rank.make();
    rank.groups.sum_weight_gradients = 0;
    EXPECT_EQ(made.sentence,
              rank.shard == 1 ? "sum_weight_gradients must be the same on all ranks of the token group, but "
                                "rank 0 has 0 and rank 1 has 1."
                              : "Rank 1 of the vocabulary group refused its configuration.");
    expect_refusal(rank, made);
  });
}

// Fault: a configuration that cannot be read at all is kept from the others, who wait.
TEST(DistributedPlan, OthersHearOfAConfigurationThatIsNone) {
  on_grid(2, 1, [](Rank& rank) {
    const Answer made = rank.make(rank.number == 0 ? nullptr : &rank.config);
    EXPECT_EQ(made.sentence, rank.number == 0 ? "config is null, but it is required."
                                              : "Rank 0 of the vocabulary group refused its configuration.");
    expect_refusal(rank, made);
  });
}

// Fault: teachers of other widths are taken for shards of one.
TEST(DistributedPlan, TheWidthsOfBothModelsAreCompared) {
  on_grid(2, 1, [](Rank& rank) {
    rank.config.teacher_hidden += rank.number;
    EXPECT_EQ(
        rank.make().sentence,
        "teacher_hidden must be the same on all ranks of the vocabulary group, but rank 0 has 4 and rank "
        "1 has 5.");
  });
}

// Fault: a rank without tokens leaves out the call that tuning makes, for which the others wait.
TEST(DistributedPlan, ARankWithoutTokensComesToTuning) {
  on_grid(1, 2, [](Rank& rank) {
    if (rank.number == 1) rank.config.tokens = 0;
    ASSERT_EQ(rank.make().status, FLJSD_OK) << fljsd_last_error();
    for (const Answer& answer : {rank.tune(), rank.forward()})
      EXPECT_EQ(answer.status, FLJSD_OK) << rank.number << ": " << answer.sentence;
    EXPECT_EQ(rank.loss, 2);
  });
}

// Fault: after a failure between two exchanges a rank goes on with communicators whose peers are at another
// one: theirs would meet the wrong one of this rank's. Or it leaves them to wait.
TEST(DistributedPlan, AFailureInACallAbortsIt) {
  std::barrier all_have_plans(4);  // a rank that aborts earlier ends the making of theirs
  on_grid(2, 2, [&](Rank& rank) {
    EXPECT_EQ(rank.make().status, FLJSD_OK) << fljsd_last_error();
    all_have_plans.arrive_and_wait();
    if (rank.plan == nullptr) return;
    fails_in_its_sweep = rank.number == 1;
    const Answer first = rank.forward();
    fails_in_its_sweep = false;
    if (rank.number == 1) {
      EXPECT_EQ(first.status, FLJSD_CUDA_ERROR);
      EXPECT_EQ(first.sentence, "A kernel of this rank was not launched.");
      EXPECT_EQ(fljsd_plan_wait(rank.plan, nullptr, long_enough), FLJSD_COMMUNICATION_ERROR);
    } else {
      EXPECT_EQ(first.status, FLJSD_COMMUNICATION_ERROR) << rank.number << ": " << first.sentence;
      EXPECT_EQ(first.sentence.find("did not come"), std::string::npos) << first.sentence;
    }
    EXPECT_EQ(rank.forward().status, FLJSD_COMMUNICATION_ERROR) << rank.number;
    EXPECT_EQ(rank.make().status, FLJSD_COMMUNICATION_ERROR) << rank.number;
  });
}

// Fault: a call that refuses its arguments counts as one, or aborts what others wait in. A captured stream is
// refused rather than found out about halfway.
TEST(DistributedPlan, ARefusedCallIsMadeAgain) {
  on_grid(2, 1, [](Rank& rank) {
    ASSERT_EQ(rank.make().status, FLJSD_OK) << fljsd_last_error();
    if (rank.number == 1) {
      is_captured = true;
      const Answer refused = rank.forward();
      is_captured = false;
      EXPECT_EQ(refused.status, FLJSD_UNSUPPORTED);
      EXPECT_EQ(refused.sentence,
                "stream is being captured into a CUDA graph, but calls that wait for other ranks cannot be.");
      EXPECT_EQ(fljsd_forward(rank.plan, nullptr, nullptr, 0, nullptr), FLJSD_INVALID_ARGUMENT);
    }
    const Answer answer = rank.forward();
    EXPECT_EQ(answer.status, FLJSD_OK) << rank.number << ": " << answer.sentence;
  });
}

// Fault: a rank whose number of tokens changes asks the others, who make a call meanwhile: two exchanges that
// are none of each other's.
TEST(DistributedPlan, ARankMakesAPlanForOtherTokensByItself) {
  on_grid(2, 2, [](Rank& rank) {
    ASSERT_EQ(rank.make().status, FLJSD_OK) << fljsd_last_error();
    rank.groups.tokens_compared = 1;
    for (int step = 1; step <= 3; ++step) {
      if (rank.part == 1) {  // both of its shards
        rank.config.tokens = 5 - 2 * step < 0 ? 0 : 5 - 2 * step;
        const Answer made = rank.make();
        ASSERT_EQ(made.status, FLJSD_OK) << made.sentence;
      }
      const Answer answer = rank.forward();
      EXPECT_EQ(answer.status, FLJSD_OK) << rank.number << ": " << answer.sentence;
      EXPECT_EQ(rank.loss, static_cast<float>(2 + (step == 1 ? 3 : step == 2 ? 1 : 0)));
    }
  });
}

// Fault: a rank that sweeps nothing takes more memory than it was allowed.
TEST(DistributedPlan, ABudgetBindsARankWithoutEntries) {
  on_grid(2, 1, [](Rank& rank) {
    rank.config.valid_vocab = 10;  // all are of rank 0
    rank.config.memory_budget = rank.number == 1 ? 300 : 0;
    const Answer made = rank.make();
    EXPECT_EQ(made.sentence,
              rank.number == 1
                  ? "memory_budget is 300 bytes, but this rank, which has 2 tokens and 0 entries "
                    "that exist, needs 1280."
                  : "Rank 1 of the vocabulary group refused its configuration.");
    rank.config.memory_budget = 0;
    expect_refusal(rank, made);
  });
}

// Fault: the null stream of another device is done, and that is taken for the plan's.
TEST(DistributedPlan, WaitsOnItsDeviceOnly) {
  on_grid(2, 1, [](Rank& rank) {
    ASSERT_EQ(rank.make().status, FLJSD_OK) << fljsd_last_error();
    host_streams::use_device(1);
    EXPECT_EQ(fljsd_plan_wait(rank.plan, nullptr, long_enough), FLJSD_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(fljsd_last_error()), "The plan was made for device 0, but device 1 is current.");
    host_streams::use_device(0);
    EXPECT_EQ(fljsd_plan_wait(rank.plan, nullptr, long_enough), FLJSD_OK);
  });
}

}  // namespace
}  // namespace fljsd::cuda
