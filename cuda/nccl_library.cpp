// SPDX-License-Identifier: Apache-2.0
#include "cuda/nccl_library.h"

#include <dlfcn.h>

#include <string>

namespace fljsd::cuda {
namespace {

NcclLibrary load() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    fail(FLJSD_UNSUPPORTED, "NCCL cannot be loaded (", reason == nullptr ? "no reason given" : reason,
         "): libnccl.so.2 must be on the loader's path, e.g. in LD_LIBRARY_PATH.");
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr)
      fail(FLJSD_UNSUPPORTED, "libnccl.so.2 has no ", name, ": NCCL 2.14 or newer is needed.");
  };
  NcclLibrary n;
  find(n.get_version, "ncclGetVersion");
  find(n.get_unique_id, "ncclGetUniqueId");
  find(n.comm_init_rank_config, "ncclCommInitRankConfig");
  find(n.comm_finalize, "ncclCommFinalize");
  find(n.comm_destroy, "ncclCommDestroy");
  find(n.comm_abort, "ncclCommAbort");
  find(n.comm_get_async_error, "ncclCommGetAsyncError");
  find(n.comm_count, "ncclCommCount");
  find(n.comm_user_rank, "ncclCommUserRank");
  find(n.comm_cu_device, "ncclCommCuDevice");
  find(n.all_gather, "ncclAllGather");
  find(n.all_reduce, "ncclAllReduce");
  find(n.get_error_string, "ncclGetErrorString");
  find(n.get_last_error, "ncclGetLastError");
  return n;
}

}  // namespace

const NcclLibrary& nccl() {
  static const NcclLibrary library = load();  // an exception leaves it for the next call to try again
  return library;
}

}  // namespace fljsd::cuda
