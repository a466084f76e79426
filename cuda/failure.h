// SPDX-License-Identifier: Apache-2.0
// Errors inside the library: a status and the sentence that fljsd_last_error() will return. api.cpp catches
// them.
#pragma once

#include <exception>
#include <sstream>
#include <string>
#include <utility>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "cuda/fljsd.h"

namespace fljsd::cuda {

class Failure : public std::exception {
 public:
  Failure(fljsd_status status, std::string sentence) : status_(status), sentence_(std::move(sentence)) {}
  fljsd_status status() const { return status_; }
  const char* what() const noexcept override { return sentence_.c_str(); }

 private:
  fljsd_status status_;
  std::string sentence_;
};

// Throws a Failure whose sentence is the parts written one after the other.
template <class... Parts>
[[noreturn]] void fail(fljsd_status status, const Parts&... parts) {
  std::ostringstream text;
  text.precision(17);
  (text << ... << parts);
  throw Failure(status, text.str());
}

// `doing` completes "CUDA reported ... while ...".
inline void check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  // CUDA keeps it as the thread's last error too, where the caller's next check would find it, or ours. One
  // that lasts comes back by itself.
  cudaGetLastError();
  const bool no_device = error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver;
  fail(no_device ? FLJSD_NO_DEVICE : FLJSD_CUDA_ERROR, "CUDA reported ", cudaGetErrorName(error), " (",
       cudaGetErrorString(error), ") while ", doing, ".");
}

inline void check(cublasStatus_t error, const char* doing) {
  if (error == CUBLAS_STATUS_SUCCESS) return;
  fail(error == CUBLAS_STATUS_NOT_SUPPORTED ? FLJSD_UNSUPPORTED : FLJSD_CUDA_ERROR, "cuBLASLt reported ",
       cublasLtGetStatusName(error), " while ", doing, ".");
}

}  // namespace fljsd::cuda
