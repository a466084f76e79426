// SPDX-License-Identifier: Apache-2.0
#include "cuda/communicator.h"

#include <cstring>
#include <string>
#include <thread>

namespace fljsd::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// Sleeps longer the longer it has waited: a microsecond at first, a millisecond in the end.
class Patience {
 public:
  explicit Patience(TimeLimit limit) : end_(Clock::now() + limit) {}
  bool is_over() const { return Clock::now() >= end_; }
  void rest() {
    if (turns_ < 200) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(turns_ < 2000 ? 20 : 1000));
    }
    ++turns_;
  }

 private:
  Clock::time_point end_;
  int turns_ = 0;
};

[[noreturn]] void fail_nccl(ncclResult_t result, ncclComm_t comm, const char* doing) {
  const char* detail = comm == nullptr ? nullptr : nccl().get_last_error(comm);
  std::string more = detail == nullptr || *detail == '\0' ? "" : std::string(": ") + detail;
  while (!more.empty() && (more.back() == '\n' || more.back() == '.')) more.pop_back();
  fail(FLJSD_COMMUNICATION_ERROR, "NCCL reported '", nccl().get_error_string(result), "' while ", doing, more,
       ".");
}

[[noreturn]] void fail_time(TimeLimit limit, const char* doing) {
  fail(FLJSD_COMMUNICATION_ERROR, "A rank did not come within ", limit.count(), " ms while ", doing,
       "; the communicator was aborted.");
}

}  // namespace

Communicator::Communicator(ncclComm_t comm, bool owned, TimeLimit limit)
    : comm_(comm), owned_(owned), limit_(limit) {}

std::unique_ptr<Communicator> Communicator::create(const ncclUniqueId& id, int ranks, int rank,
                                                   TimeLimit limit) {
  constexpr const char* doing = "creating a communicator";
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t result = nccl().comm_init_rank_config(&comm, ranks, id, rank, &config);
  if (result != ncclSuccess && result != ncclInProgress) fail_nccl(result, nullptr, doing);
  std::unique_ptr<Communicator> made(new Communicator(comm, true, limit));
  made->ranks_ = ranks;
  made->rank_ = rank;
  check(cudaGetDevice(&made->device_), "asking for the current device");
  made->settle(result, doing);
  made->make_scratch();
  return made;
}

std::unique_ptr<Communicator> Communicator::adopt(ncclComm_t comm, TimeLimit limit) {
  std::unique_ptr<Communicator> made(new Communicator(comm, false, limit));
  for (const ncclResult_t result :
       {nccl().comm_count(comm, &made->ranks_), nccl().comm_user_rank(comm, &made->rank_),
        nccl().comm_cu_device(comm, &made->device_)}) {
    if (result != ncclSuccess) fail_nccl(result, comm, "asking a communicator for its size");
  }
  int current = -1;
  check(cudaGetDevice(&current), "asking for the current device");
  if (current != made->device_) {
    fail(FLJSD_INVALID_ARGUMENT, "The communicator is device ", made->device_, "'s, but device ", current,
         " is the current one.");
  }
  made->make_scratch();
  return made;
}

void Communicator::make_scratch() {
  constexpr const char* doing = "making room for exchanges";
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), doing);
  const std::size_t bytes = most_exchanged * (1 + static_cast<std::size_t>(ranks_));
  check(cudaMalloc(&scratch_, bytes), doing);
  // For tools that look for memory nobody wrote: they do not see what NCCL writes.
  check(cudaMemsetAsync(scratch_, 0, bytes, stream_), doing);
}

Communicator::~Communicator() {
  if (owned_ && !aborted_) finalise();
  cudaFree(scratch_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

// Finalising needs the peers; where they are gone, aborting does not.
void Communicator::finalise() const {
  ncclResult_t state = nccl().comm_finalize(comm_);
  Patience patience(limit_);
  while (state == ncclInProgress && !patience.is_over()) {
    patience.rest();
    if (nccl().comm_get_async_error(comm_, &state) != ncclSuccess) break;
  }
  if (state == ncclSuccess) {
    nccl().comm_destroy(comm_);
  } else {
    nccl().comm_abort(comm_);
  }
}

void Communicator::settle(ncclResult_t result, const char* doing) const {
  Patience patience(limit_);
  while (result == ncclInProgress) {
    if (patience.is_over()) {
      abort();
      fail_time(limit_, doing);
    }
    patience.rest();
    const ncclResult_t asked = nccl().comm_get_async_error(comm_, &result);
    if (asked != ncclSuccess) result = asked;
  }
  if (result == ncclSuccess) return;
  try {
    fail_nccl(result, comm_, doing);
  } catch (...) {
    abort();
    throw;
  }
}

void Communicator::check_health() const {
  if (aborted_) {
    fail(FLJSD_COMMUNICATION_ERROR,
         "The communicator was aborted, and can only be destroyed; make new ones on all ranks.");
  }
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl().comm_get_async_error(comm_, &state);
  for (const ncclResult_t result : {asked, state}) {
    if (result != ncclSuccess && result != ncclInProgress)
      fail_nccl(result, comm_, "exchanging with other ranks");
  }
}

void Communicator::abort() const {
  if (!aborted_.exchange(true)) nccl().comm_abort(comm_);
}

void Communicator::all_gather(const void* send, void* receive, Index bytes, cudaStream_t stream) const {
  check_health();
  settle(nccl().all_gather(send, receive, static_cast<std::size_t>(bytes), ncclChar, comm_, stream),
         "gathering from all ranks");
}

void Communicator::all_reduce_sum(float* data, Index count, cudaStream_t stream) const {
  check_health();
  settle(nccl().all_reduce(data, data, static_cast<std::size_t>(count), ncclFloat, ncclSum, comm_, stream),
         "summing over all ranks");
}

std::vector<std::byte> Communicator::exchange(const void* mine, std::size_t bytes) const {
  constexpr const char* doing = "comparing plans with other ranks";
  auto* gathered = static_cast<std::byte*>(scratch_) + most_exchanged;
  std::vector<std::byte> result(bytes * static_cast<std::size_t>(ranks_));
  check(cudaMemcpyAsync(scratch_, mine, bytes, cudaMemcpyHostToDevice, stream_), doing);
  all_gather(scratch_, gathered, static_cast<Index>(bytes), stream_);
  wait_for(stream_, {this}, limit_);
  check(cudaMemcpyAsync(result.data(), gathered, result.size(), cudaMemcpyDeviceToHost, stream_), doing);
  check(cudaStreamSynchronize(stream_), doing);
  return result;
}

void wait_for(cudaStream_t stream, const std::vector<const Communicator*>& communicators, TimeLimit limit) {
  const auto abort_all = [&] {
    for (const Communicator* c : communicators)
      if (c != nullptr) c->abort();
  };
  Patience patience(limit);
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check(state, "waiting for a stream");
    cudaGetLastError();  // "not ready" is kept as the thread's last error, and is none
    try {
      for (const Communicator* c : communicators)
        if (c != nullptr) c->check_health();
    } catch (...) {
      abort_all();
      throw;
    }
    if (patience.is_over()) {
      abort_all();
      fail_time(limit, "waiting for the enqueued work");
    }
    patience.rest();
  }
}

}  // namespace fljsd::cuda
