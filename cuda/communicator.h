// SPDX-License-Identifier: Apache-2.0
// One rank's end of an NCCL communicator, with every wait bounded.
//
// A communicator that create() makes is non-blocking: NCCL's calls return at once, also where a peer is
// missing, and settle() asks until NCCL has finished with the call, at most for the time limit. Work that was
// enqueued and whose peers do not come keeps its stream busy; wait() watches for that. Whoever runs out of
// time, or whom NCCL tells of an error, aborts the communicator, which ends its kernels; it is then of no
// further use.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/nccl_library.h"
#include "cuda/settings.h"

namespace fljsd::cuda {

using TimeLimit = std::chrono::milliseconds;

class Communicator {
 public:
  // Collective: all ranks call it with the same id. Throws Failure(FLJSD_COMMUNICATION_ERROR) when that takes
  // longer than the limit. The communicator is for the current device.
  static std::unique_ptr<Communicator> create(const ncclUniqueId& id, int ranks, int rank, TimeLimit limit);
  // Of somebody else, who destroys it. If it is a blocking one, calls with a missing peer may hang.
  static std::unique_ptr<Communicator> adopt(ncclComm_t comm, TimeLimit limit);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  int device() const { return device_; }
  TimeLimit limit() const { return limit_; }

  // Enqueued on the stream; all ranks, in the same order. receive: [ranks, bytes]; may overlap send only as
  // NCCL allows.
  void all_gather(const void* send, void* receive, Index bytes, cudaStream_t stream) const;
  void all_reduce_sum(float* data, Index count, cudaStream_t stream) const;

  // The same number of bytes, at most most_exchanged, from every rank's host memory, in rank order; waits.
  static constexpr std::size_t most_exchanged = 1024;
  std::vector<std::byte> exchange(const void* mine, std::size_t bytes) const;

  // Throws Failure if NCCL reports an error, which aborts the communicator, or if it was aborted before.
  void check_health() const;
  void check_not_aborted() const;
  // Ends everything that is under way, on this rank. Idempotent; from any thread: a call that waits for other
  // ranks meanwhile ends with a Failure.
  void abort() const;

 private:
  Communicator(ncclComm_t comm, bool owned, TimeLimit limit);
  void make_scratch();
  void finalise() const;
  template <class Call>
  void enqueue(const char* doing, const Call& call) const;
  void settle(ncclResult_t result, const char* doing) const;
  ncclResult_t ask() const;
  void check_not_aborted_locked() const;
  [[noreturn]] void fail_nccl(ncclResult_t result, const char* doing) const;

  ncclComm_t comm_;
  bool owned_;
  TimeLimit limit_;
  int ranks_ = 1, rank_ = 0, device_ = 0;
  // For exchange(). Kept, because where ranks share a process cudaFree waits for all of its GPUs, also for
  // one whose kernel waits for this rank.
  void* scratch_ = nullptr;
  cudaStream_t stream_ = nullptr;
  // Held while comm_ is used: aborting frees it.
  mutable std::mutex mutex_;
  mutable bool aborted_ = false;
};

// Null ones are skipped.
void abort_all(const std::vector<const Communicator*>& communicators);

// Waits until the stream has done what was enqueued. When a communicator (null ones are skipped) reports an
// error or was aborted, which ends its work too, or the limit passes, all are aborted and
// Failure(FLJSD_COMMUNICATION_ERROR) is thrown.
void wait_for(cudaStream_t stream, const std::vector<const Communicator*>& communicators, TimeLimit limit);

}  // namespace fljsd::cuda
