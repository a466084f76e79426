// SPDX-License-Identifier: Apache-2.0
// A stand-in for libnccl.so.2 whose ranks are threads of one process that share one GPU, which NCCL itself
// refuses: so that everything of a distributed plan but the transport runs on a machine with one GPU, in any
// grid of ranks. Only what cuda/nccl_library.h asks for; non-blocking communicators only.
//
// A collective waits on the host (ncclInProgress) until the last rank has posted its part. That rank enqueues
// the whole on its stream, behind what every rank's stream has done so far, and makes all streams wait for
// it. So nothing on the device ever waits for the host or for another rank, and nothing can hang but a poll,
// which has its caller's time limit. Sums are in rank order.
//
// What goes wrong on one rank is told to all ranks of the communicator at their next poll.
#include <nccl.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include <cuda_runtime_api.h>

#include "verify/tests/gpu/loopback/rank_order_sum.h"

namespace {

using fljsd::loopback::most_ranks;

struct Part {
  const void* send;
  void* receive;
  cudaStream_t stream;
};

struct Group {
  Group(int size, int on) : ranks(size), device(on) {}
  ~Group() { cudaFree(scratch); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  std::mutex mutex;
  const int ranks, device;
  int arrived = 0;
  long done = 0;              // collectives that were enqueued
  std::map<int, Part> parts;  // of the one under way, by rank
  ncclResult_t error = ncclSuccess;
  float* scratch = nullptr;
  std::size_t scratch_floats = 0;
};

std::mutex registry_mutex;
std::map<long, std::shared_ptr<Group>>& registry() {
  static std::map<long, std::shared_ptr<Group>> groups;
  return groups;
}

bool failed(cudaError_t error) {
  return error != cudaSuccess;
}

// `to` does nothing more before what `from` has been given so far.
bool wait_for_stream(cudaStream_t to, cudaStream_t from) {
  cudaEvent_t event;
  if (failed(cudaEventCreateWithFlags(&event, cudaEventDisableTiming))) return false;
  const bool fine = !failed(cudaEventRecord(event, from)) && !failed(cudaStreamWaitEvent(to, event, 0));
  cudaEventDestroy(event);
  return fine;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Group> group;
  int rank = 0;
  long posted = 0;
};

namespace {

// enqueue(group, stream): the collective, of all parts.
template <class Enqueue>
ncclResult_t post(ncclComm_t comm, const Part& part, const Enqueue& enqueue) {
  Group& g = *comm->group;
  const std::lock_guard lock(g.mutex);
  if (g.error != ncclSuccess) return g.error;
  g.parts[comm->rank] = part;
  ++comm->posted;
  if (static_cast<int>(g.parts.size()) < g.ranks) return ncclInProgress;
  bool fine = true;
  for (const auto& [rank, other] : g.parts) fine = fine && wait_for_stream(part.stream, other.stream);
  fine = fine && enqueue(g, part.stream);
  for (const auto& [rank, other] : g.parts) fine = fine && wait_for_stream(other.stream, part.stream);
  g.parts.clear();
  ++g.done;
  if (!fine) g.error = ncclUnhandledCudaError;
  return g.error;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static long next = 0;
  const std::lock_guard lock(registry_mutex);
  std::memset(id, 0, sizeof *id);
  ++next;
  std::memcpy(id, &next, sizeof next);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t*) {
  if (ranks > most_ranks || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  long key;
  std::memcpy(&key, &id, sizeof key);
  int device = 0;
  if (failed(cudaGetDevice(&device))) return ncclUnhandledCudaError;
  auto made = std::make_unique<ncclComm>();
  made->rank = rank;
  {
    const std::lock_guard lock(registry_mutex);
    std::shared_ptr<Group>& group = registry()[key];
    if (!group) group = std::make_shared<Group>(ranks, device);
    made->group = group;
    Group& g = *group;
    // Before this rank counts as arrived: a rank that then finds all of them must find the error too.
    // A stream of one device cannot record an event of another, and a null stream is the current device's.
    if (g.ranks != ranks || g.device != device) {
      const std::lock_guard also(g.mutex);
      g.error = ncclInvalidUsage;
    }
    if (++g.arrived == ranks) registry().erase(key);
  }
  *comm = made.release();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  Group& g = *comm->group;
  const std::scoped_lock lock(registry_mutex, g.mutex);
  const bool waits = g.arrived < g.ranks || g.done < comm->posted;
  *state = g.error != ncclSuccess ? g.error : waits ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) {
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    Group& g = *comm->group;
    const std::lock_guard lock(g.mutex);
    g.parts.clear();  // nobody may read what this rank is about to free
    if (g.error == ncclSuccess) g.error = ncclRemoteError;
  }
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->group->ranks;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->group->device;
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclChar) return ncclInvalidArgument;
  return post(comm, {send, receive, stream}, [count](const Group& g, cudaStream_t on) {
    for (const auto& [to, mine] : g.parts) {
      for (const auto& [from, theirs] : g.parts) {
        if (failed(cudaMemcpyAsync(static_cast<char*>(mine.receive) + static_cast<std::size_t>(from) * count,
                                   theirs.send, count, cudaMemcpyDeviceToDevice, on)))
          return false;
      }
    }
    return true;
  });
}

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclFloat || operation != ncclSum) return ncclInvalidArgument;
  return post(comm, {send, receive, stream}, [count](Group& g, cudaStream_t on) {
    if (g.scratch_floats < count) {
      cudaFree(g.scratch);
      g.scratch = nullptr;
      g.scratch_floats = 0;
      void* made = nullptr;
      if (failed(cudaMalloc(&made, count * sizeof(float)))) return false;
      g.scratch = static_cast<float*>(made);
      g.scratch_floats = count;
    }
    fljsd::loopback::Sources sources{};
    for (const auto& [rank, part] : g.parts) sources.data[rank] = static_cast<const float*>(part.send);
    if (failed(fljsd::loopback::enqueue_rank_order_sum(sources, g.ranks, count, g.scratch, on))) return false;
    for (const auto& [rank, part] : g.parts) {
      if (failed(
              cudaMemcpyAsync(part.receive, g.scratch, count * sizeof(float), cudaMemcpyDeviceToDevice, on)))
        return false;
    }
    return true;
  });
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclUnhandledCudaError ? "CUDA error"
         : result == ncclInvalidArgument  ? "invalid argument"
         : result == ncclRemoteError      ? "another rank aborted"
         : result == ncclInvalidUsage     ? "all ranks must share one GPU and agree on their number"
                                          : "?";
}
const char* ncclGetLastError(ncclComm_t) {
  return "";
}

}  // extern "C"
