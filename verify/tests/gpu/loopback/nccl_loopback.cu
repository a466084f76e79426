// SPDX-License-Identifier: Apache-2.0
// A stand-in for libnccl.so.2 whose ranks are threads of one process that share one GPU, which NCCL itself
// refuses: so that everything of a distributed plan but the transport runs on a machine with one GPU, in any
// grid of ranks. Only what cuda/nccl_library.h asks for; non-blocking only.
//
// A collective waits (ncclInProgress) until the last rank has posted its part. That rank enqueues the whole
// on its stream, behind what every rank's stream has done so far, and makes all streams wait for it. Sums are
// in rank order.
#include <nccl.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <cuda_runtime.h>

namespace {

constexpr int most_ranks = 64;

struct Part {
  const void* send;
  void* receive;
  cudaStream_t stream;
};

struct Group {
  explicit Group(int size) : ranks(size) {}
  std::mutex mutex;
  int ranks, arrived = 0;
  long done = 0;              // collectives that were enqueued
  std::map<int, Part> parts;  // of the one under way, by rank
  float* scratch = nullptr;
  std::size_t scratch_floats = 0;
};

std::mutex registry_mutex;
std::map<long, std::shared_ptr<Group>>& registry() {
  static std::map<long, std::shared_ptr<Group>> groups;
  return groups;
}

struct Sources {
  const float* data[most_ranks];
};
__global__ void sum_in_rank_order(Sources sources, int ranks, std::size_t count, float* out) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    float sum = sources.data[0][i];
    for (int r = 1; r < ranks; ++r) sum += sources.data[r][i];
    out[i] = sum;
  }
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
  int rank = 0, device = 0;
  long posted = 0;
  bool aborted = false;
};

namespace {

// enqueue(group, stream): the collective, of all parts.
template <class Enqueue>
ncclResult_t post(ncclComm_t comm, const Part& part, const Enqueue& enqueue) {
  Group& g = *comm->group;
  const std::lock_guard lock(g.mutex);
  g.parts[comm->rank] = part;
  ++comm->posted;
  if (static_cast<int>(g.parts.size()) < g.ranks) return ncclInProgress;
  for (const auto& [rank, other] : g.parts)
    if (!wait_for_stream(part.stream, other.stream)) return ncclUnhandledCudaError;
  if (!enqueue(g, part.stream)) return ncclUnhandledCudaError;
  for (const auto& [rank, other] : g.parts)
    if (!wait_for_stream(other.stream, part.stream)) return ncclUnhandledCudaError;
  g.parts.clear();
  ++g.done;
  return ncclSuccess;
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
  if (ranks > most_ranks) return ncclInvalidArgument;
  long key;
  std::memcpy(&key, &id, sizeof key);
  auto made = std::make_unique<ncclComm>();
  made->rank = rank;
  if (failed(cudaGetDevice(&made->device))) return ncclUnhandledCudaError;
  {
    const std::lock_guard lock(registry_mutex);
    std::shared_ptr<Group>& group = registry()[key];
    if (!group) group = std::make_shared<Group>(ranks);
    made->group = group;
  }
  const std::lock_guard lock(made->group->mutex);
  ++made->group->arrived;
  *comm = made.release();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard lock(comm->group->mutex);
  const bool waits = comm->group->arrived < comm->group->ranks || comm->group->done < comm->posted;
  *state = waits ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) {
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
// Kept, as the caller's handle is: a test's memory.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
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
  *device = comm->device;
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
      if (failed(cudaMalloc(&g.scratch, count * sizeof(float)))) return false;
      g.scratch_floats = count;
    }
    Sources sources{};
    for (const auto& [rank, part] : g.parts) sources.data[rank] = static_cast<const float*>(part.send);
    sum_in_rank_order<<<256, 256, 0, on>>>(sources, g.ranks, count, g.scratch);
    if (failed(cudaGetLastError())) return false;
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
                                          : "?";
}
const char* ncclGetLastError(ncclComm_t) {
  return "";
}

}  // extern "C"
