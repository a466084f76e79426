// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/tensor_map.h"

#include <cuda_runtime_api.h>

#include "cuda/failure.h"

namespace fljsd::cuda::hopper {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function, asked for by name, so that the library needs no driver to be loaded.
Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                         &result),
        "asking the driver for tensor maps");
  if (result != cudaDriverEntryPointSuccess || function == nullptr) {
    fail(FLJSD_UNSUPPORTED, "The driver has no tensor maps; it must be of CUDA 12.0 or newer.");
  }
  return reinterpret_cast<Encode>(function);
}

}  // namespace

CUtensorMap make_tensor_map(const void* data, fljsd_dtype dtype, Index rows, Index columns, Index ld,
                            int box_rows) {
  static const Encode encode = find_encode();
  constexpr cuuint32_t box_columns = 64;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(ld * size_of(dtype))};
  const cuuint32_t box[] = {box_columns, static_cast<cuuint32_t>(box_rows)}, element_strides[] = {1, 1};
  CUtensorMap map;
  const CUresult result = encode(
      &map, dtype == FLJSD_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
      const_cast<void*>(data), sizes, strides, box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    fail(FLJSD_CUDA_ERROR, "The driver reported error ", static_cast<int>(result),
         " for the tensor map of a [", rows, ", ", columns, "] matrix with leading dimension ", ld, ".");
  }
  return map;
}

}  // namespace fljsd::cuda::hopper
