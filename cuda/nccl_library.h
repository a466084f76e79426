// SPDX-License-Identifier: Apache-2.0
// NCCL, found when it is first needed: libnccl.so.2 of the process if one is loaded (PyTorch brings its own),
// otherwise the one that the loader finds. So the library of the stages loads where there is no NCCL.
#pragma once

#include <nccl.h>

#include "cuda/failure.h"

namespace fljsd::cuda {

struct NcclLibrary {
  decltype(&::ncclGetVersion) get_version = nullptr;
  decltype(&::ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&::ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&::ncclCommFinalize) comm_finalize = nullptr;
  decltype(&::ncclCommDestroy) comm_destroy = nullptr;
  decltype(&::ncclCommAbort) comm_abort = nullptr;
  decltype(&::ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&::ncclCommCount) comm_count = nullptr;
  decltype(&::ncclCommUserRank) comm_user_rank = nullptr;
  decltype(&::ncclCommCuDevice) comm_cu_device = nullptr;
  decltype(&::ncclAllGather) all_gather = nullptr;
  decltype(&::ncclAllReduce) all_reduce = nullptr;
  decltype(&::ncclGetErrorString) get_error_string = nullptr;
  decltype(&::ncclGetLastError) get_last_error = nullptr;
};

// Throws Failure(FLJSD_UNSUPPORTED) where there is no NCCL 2.14 or newer.
const NcclLibrary& nccl();

}  // namespace fljsd::cuda
