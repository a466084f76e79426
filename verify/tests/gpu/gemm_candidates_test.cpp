// SPDX-License-Identifier: Apache-2.0
// Which of the heuristics' algorithms a product runs, on a cuBLASLt and a runtime that the host plays: every
// algorithm takes the time that a test gives it, or refuses.
#include "cuda/gemm.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/failure.h"

namespace fljsd::cuda {
namespace {

constexpr float refuses = -1;

struct Host {
  std::vector<float> milliseconds;  // by algorithm
  float clock = 0;
  int events = 0;  // alive
  int last = -1;   // the algorithm that ran last
  cudaError_t pending = cudaSuccess;
};
Host& host() {
  static Host the_host;
  return the_host;
}

class GemmCandidates : public testing::Test {
 protected:
  void SetUp() override { host() = {}; }
  // Catches: events that a failure leaves behind.
  void TearDown() override { EXPECT_EQ(host().events, 0); }

  static Gemm make(std::vector<float> milliseconds) {
    host().milliseconds = std::move(milliseconds);
    return Gemm(std::make_shared<LtHandle>(),
                {.what = "tested product", .m = 2, .n = 2, .k = 2, .lda = 2, .ldb = 2, .ldc = 2});
  }
  static constexpr Gemm::Operands operands{};
};

// Catches: a tuned product that runs another algorithm than the fastest.
TEST_F(GemmCandidates, TheFastestIsKept) {
  Gemm gemm = make({3, 1, 2});
  gemm.run(nullptr, operands);
  EXPECT_EQ(host().last, 0);
  gemm.tune(nullptr, operands);
  gemm.run(nullptr, operands);
  EXPECT_EQ(host().last, 1);
}

// Catches: tuning that fails, leaks, or leaves an error for the next call, because one of several algorithms
// does not run; and one that keeps that algorithm as the fastest.
TEST_F(GemmCandidates, OneThatRefusesIsPassedOver) {
  for (const std::vector<float>& times : {std::vector<float>{refuses, 4, 2}, {4, refuses, 2}, {4, 5, 2}}) {
    Gemm gemm = make(times);
    gemm.tune(nullptr, operands);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    gemm.run(nullptr, operands);
    EXPECT_EQ(host().last, 2);
  }
}

// Catches: a product that no algorithm can do and that counts as tuned.
TEST_F(GemmCandidates, NoneIsAFailure) {
  Gemm gemm = make({refuses, refuses});
  try {
    gemm.tune(nullptr, operands);
    ADD_FAILURE() << "Nothing ran, and something was the fastest.";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status(), FLJSD_CUDA_ERROR);
    EXPECT_NE(std::string(failure.what()).find("tested product"), std::string::npos) << failure.what();
  }
}

}  // namespace
}  // namespace fljsd::cuda

// ---- cuBLASLt: an algorithm is its number ----

using fljsd::cuda::host;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int context;
  *handle = reinterpret_cast<cublasLtHandle_t>(&context);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusName(cublasStatus_t) {
  return "a status";
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t,
                                        cudaDataType_t) {
  *description = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
                                              const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType, std::uint64_t,
                                          std::uint64_t, std::int64_t) {
  *layout = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t, const void*,
                                                    std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
  *count = static_cast<int>(host().milliseconds.size());
  for (int i = 0; i < *count; ++i) {
    results[i] = {};
    results[i].state = CUBLAS_STATUS_SUCCESS;
    results[i].algo.data[0] = static_cast<std::uint64_t>(i);
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t*,
                                                    cublasLtMatmulAlgoConfigAttributes_t, void*, std::size_t,
                                                    std::size_t*) {
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*,
                              cublasLtMatrixLayout_t, const void*, cublasLtMatrixLayout_t, const void*,
                              const void*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t* algorithm, void*, std::size_t, cudaStream_t) {
  host().last = static_cast<int>(algorithm->data[0]);
  const float milliseconds = host().milliseconds[algorithm->data[0]];
  if (milliseconds == fljsd::cuda::refuses) {
    host().pending = cudaErrorLaunchOutOfResources;
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  host().clock += milliseconds;
  return CUBLAS_STATUS_SUCCESS;
}

// ---- the CUDA runtime: an event is a time ----

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaPeekAtLastError() {
  return host().pending;
}
cudaError_t cudaGetLastError() {
  return std::exchange(host().pending, cudaSuccess);
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  ++host().events;
  *event = reinterpret_cast<cudaEvent_t>(new float(0));
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  --host().events;
  delete reinterpret_cast<float*>(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  *reinterpret_cast<float*>(event) = host().clock;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
  *milliseconds = *reinterpret_cast<float*>(stop) - *reinterpret_cast<float*>(start);
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t) {
  return "an error";
}
const char* cudaGetErrorString(cudaError_t) {
  return "of the host's runtime";
}

}  // extern "C"
