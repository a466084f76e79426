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

[[noreturn]] void fail_reported(ncclResult_t result, const char* doing, std::string more) {
  while (!more.empty() && (more.back() == '\n' || more.back() == '.')) more.pop_back();
  fail(FLJSD_COMMUNICATION_ERROR, "NCCL reported '", nccl().get_error_string(result), "' while ", doing,
       more.empty() ? "" : ": ", more, ".");
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
  if (result != ncclSuccess && result != ncclInProgress) fail_reported(result, doing, "");
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
    if (result != ncclSuccess) fail_reported(result, "asking a communicator for its size", "");
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

// What NCCL says of the work under way.
ncclResult_t Communicator::ask() const {
  const std::lock_guard lock(mutex_);
  check_not_aborted_locked();
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl().comm_get_async_error(comm_, &state);
  return asked != ncclSuccess ? asked : state;
}

void Communicator::fail_nccl(ncclResult_t result, const char* doing) const {
  std::string detail;
  {
    const std::lock_guard lock(mutex_);
    check_not_aborted_locked();
    if (const char* text = nccl().get_last_error(comm_)) detail = text;
  }
  abort();
  fail_reported(result, doing, detail);
}

void Communicator::settle(ncclResult_t result, const char* doing) const {
  Patience patience(limit_);
  while (result == ncclInProgress) {
    if (patience.is_over()) {
      abort();
      fail_time(limit_, doing);
    }
    patience.rest();
    result = ask();
  }
  if (result != ncclSuccess) fail_nccl(result, doing);
}

void Communicator::check_health() const {
  const ncclResult_t result = ask();
  if (result != ncclSuccess && result != ncclInProgress) fail_nccl(result, "exchanging with other ranks");
}

void Communicator::check_not_aborted() const {
  const std::lock_guard lock(mutex_);
  check_not_aborted_locked();
}
void Communicator::check_not_aborted_locked() const {
  if (aborted_) {
    fail(FLJSD_COMMUNICATION_ERROR,
         "The communicator was aborted, and can only be destroyed; make new ones on all ranks.");
  }
}

void Communicator::abort() const {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
  }
  nccl().comm_abort(comm_);  // nobody uses it any more
}

template <class Call>
void Communicator::enqueue(const char* doing, const Call& call) const {
  check_health();
  std::unique_lock lock(mutex_, std::defer_lock);
  // An adopted communicator may be a blocking one: abort() from another thread is what ends its call then.
  if (owned_) {
    lock.lock();
    check_not_aborted_locked();
  }
  const ncclResult_t result = call();
  if (owned_) lock.unlock();
  settle(result, doing);
}

void Communicator::all_gather(const void* send, void* receive, Index bytes, cudaStream_t stream) const {
  enqueue("gathering from all ranks", [&] {
    return nccl().all_gather(send, receive, static_cast<std::size_t>(bytes), ncclChar, comm_, stream);
  });
}

void Communicator::all_reduce_sum(float* data, Index count, cudaStream_t stream) const {
  enqueue("summing over all ranks", [&] {
    return nccl().all_reduce(data, data, static_cast<std::size_t>(count), ncclFloat, ncclSum, comm_, stream);
  });
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

void abort_all(const std::vector<const Communicator*>& communicators) {
  for (const Communicator* c : communicators)
    if (c != nullptr) c->abort();
}

void wait_for(cudaStream_t stream, const std::vector<const Communicator*>& communicators, TimeLimit limit) {
  Patience patience(limit);
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state != cudaSuccess && state != cudaErrorNotReady) check(state, "waiting for a stream");
    if (state != cudaSuccess)
      cudaGetLastError();  // "not ready" is kept as the thread's last error, and is none
    try {
      for (const Communicator* c : communicators) {
        if (c == nullptr) continue;
        // A stream that is done may owe that to an abort. An error reported since is that of a peer who left.
        state == cudaSuccess ? c->check_not_aborted() : c->check_health();
      }
    } catch (...) {
      abort_all(communicators);
      throw;
    }
    if (state == cudaSuccess) return;
    if (patience.is_over()) {
      abort_all(communicators);
      fail_time(limit, "waiting for the enqueued work");
    }
    patience.rest();
  }
}

}  // namespace fljsd::cuda
