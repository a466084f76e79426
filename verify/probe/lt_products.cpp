// SPDX-License-Identifier: Apache-2.0
#include "verify/probe/lt_products.h"

#include <stdexcept>

#include <cublasLt.h>
#include <cuda_runtime.h>

namespace fljsd::probe {
namespace {

void check(cublasStatus_t status, const char* doing) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(doing) + ": cuBLASLt status " + std::to_string(status) + '.');
}
void check(cudaError_t status, const char* doing) {
  if (status != cudaSuccess)
    throw std::runtime_error(std::string(doing) + ": " + cudaGetErrorString(status) + '.');
}

struct DeviceBytes {
  explicit DeviceBytes(std::size_t size) { check(cudaMalloc(&data, size), "allocating device memory"); }
  DeviceBytes(const void* host, std::size_t size) : DeviceBytes(size) {
    check(cudaMemcpy(data, host, size, cudaMemcpyHostToDevice), "copying operands");
  }
  ~DeviceBytes() { cudaFree(data); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  void* data = nullptr;
};

// cuBLASLt's handles, which live as long as the program's one use of them.
struct Description {
  // Column-major Dᵀ[cols, rows] = (B as stored)ᵀ · (A as stored): row-major matrices are their own
  // transposes.
  explicit Description(const Products& p, int alignment) {
    const cudaDataType_t type = p.dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
    const auto rows = static_cast<std::uint64_t>(p.rows), cols = static_cast<std::uint64_t>(p.cols),
               depth = static_cast<std::uint64_t>(p.depth);
    check(cublasLtCreate(&lt), "creating a handle");
    check(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
    const cublasOperation_t transpose = CUBLAS_OP_T;
    check(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
          "describing a product");
    check(cublasLtMatrixLayoutCreate(&first, type, depth, cols, p.depth), "describing B");
    check(cublasLtMatrixLayoutCreate(&second, type, depth, rows, p.depth), "describing A");
    check(cublasLtMatrixLayoutCreate(&result, CUDA_R_32F, cols, rows, p.cols), "describing D");
    check(cublasLtMatmulPreferenceCreate(&preference), "describing preferences");
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &workspace, sizeof workspace),
          "describing preferences");
    const auto bytes = static_cast<std::uint32_t>(alignment);
    for (const auto which :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES})
      check(cublasLtMatmulPreferenceSetAttribute(preference, which, &bytes, sizeof bytes),
            "describing preferences");
  }
  ~Description() {
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(result);
    cublasLtMatrixLayoutDestroy(second);
    cublasLtMatrixLayoutDestroy(first);
    cublasLtMatmulDescDestroy(product);
    cublasLtDestroy(lt);
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  static constexpr std::uint64_t workspace = std::uint64_t{32} << 20;
  cublasLtHandle_t lt = nullptr;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
};

int config(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  std::uint64_t value = 0;  // attributes are 2, 4 or 8 bytes
  std::size_t written = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written);
  if (status == CUBLAS_STATUS_SUCCESS) return static_cast<int>(value);
  std::uint32_t narrow = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &narrow, sizeof narrow, &written) ==
      CUBLAS_STATUS_SUCCESS)
    return static_cast<int>(narrow);
  std::uint16_t narrowest = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &narrowest, sizeof narrowest, &written) ==
      CUBLAS_STATUS_SUCCESS)
    return narrowest;
  return -1;
}

std::string describe(const cublasLtMatmulAlgo_t& a) {
  std::string text;
  const auto add = [&](const char* what, cublasLtMatmulAlgoConfigAttributes_t attribute) {
    text += (text.empty() ? "" : " ") + std::string(what) + '=' + std::to_string(config(a, attribute));
  };
  add("id", CUBLASLT_ALGO_CONFIG_ID);
  add("tile", CUBLASLT_ALGO_CONFIG_TILE_ID);
  add("stages", CUBLASLT_ALGO_CONFIG_STAGES_ID);
  add("inner", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID);
  add("cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
  add("split_k", CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
  add("reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  add("custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION);
  return text;
}

}  // namespace

std::vector<LtAnswer> multiply_with_cublaslt(const Products& p, int most, int alignment) {
  const Description description(p, alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
  int count = 0;
  check(cublasLtMatmulAlgoGetHeuristic(description.lt, description.product, description.first,
                                       description.second, description.result, description.result,
                                       description.preference, most, found.data(), &count),
        "looking for algorithms");
  const DeviceBytes a(p.a.data(), p.a.size() * 2), b(p.b.data(), p.b.size() * 2);
  const std::size_t size = static_cast<std::size_t>(p.rows * p.cols);
  const DeviceBytes d(size * 4), workspace(Description::workspace);
  const float one = 1, zero = 0;
  std::vector<LtAnswer> answers;
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& candidate = found[static_cast<std::size_t>(i)];
    if (candidate.state != CUBLAS_STATUS_SUCCESS) continue;
    LtAnswer answer{describe(candidate.algo), config(candidate.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), {}};
    check(cudaMemset(d.data, 0xa5, size * 4), "poisoning the answer");
    const cublasStatus_t status =
        cublasLtMatmul(description.lt, description.product, &one, b.data, description.first, a.data,
                       description.second, &zero, d.data, description.result, d.data, description.result,
                       &candidate.algo, workspace.data, Description::workspace, nullptr);
    if (status == CUBLAS_STATUS_SUCCESS) {
      answer.d.resize(size);
      check(cudaDeviceSynchronize(), "computing a product");
      check(cudaMemcpy(answer.d.data(), d.data, size * 4, cudaMemcpyDeviceToHost), "copying the answer");
    }
    answers.push_back(std::move(answer));
  }
  return answers;
}

std::string cublaslt_version() {
  return std::to_string(cublasLtGetVersion());
}

}  // namespace fljsd::probe
