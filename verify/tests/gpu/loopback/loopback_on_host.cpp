// SPDX-License-Identifier: Apache-2.0
// The stand-in for NCCL in a test without a GPU: linked, not loaded, and its sums on streams that the host
// plays.
#include "cuda/nccl_library.h"
#include "verify/tests/gpu/loopback/rank_order_sum.h"
#include "verify/tests/gpu/streams_on_host.h"

namespace fljsd::cuda {

const NcclLibrary& nccl() {
  static const NcclLibrary linked{
      ncclGetVersion, ncclGetUniqueId,       ncclCommInitRankConfig, ncclCommFinalize, ncclCommDestroy,
      ncclCommAbort,  ncclCommGetAsyncError, ncclCommCount,          ncclCommUserRank, ncclCommCuDevice,
      ncclAllGather,  ncclAllReduce,         ncclGetErrorString,     ncclGetLastError};
  return linked;
}

}  // namespace fljsd::cuda

namespace fljsd::loopback {

cudaError_t enqueue_rank_order_sum(const Sources& sources, int ranks, std::size_t count, float* out,
                                   cudaStream_t stream) {
  host_streams::enqueue(stream, [=] {
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = sources.data[0][i];
      for (int r = 1; r < ranks; ++r) out[i] += sources.data[r][i];
    }
  });
  return cudaSuccess;
}

}  // namespace fljsd::loopback
