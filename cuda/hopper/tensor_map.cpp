// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/tensor_map.h"

#include <algorithm>
#include <limits>

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

std::string obstacle_to_maps(const Settings& s) {
  if (s.student.dtype == FLJSD_F32 || s.student.dtype != s.teacher.dtype) {
    return std::string("the models are in ") + name(s.student.dtype) + " and " + name(s.teacher.dtype) +
           ", and both must be in bf16 or both in fp16";
  }
  for (const Index ld : {s.student.input_ld, s.student.weight_ld, s.teacher.input_ld, s.teacher.weight_ld}) {
    if (ld % 8 != 0) return "a leading dimension is " + std::to_string(ld) + ", and must be a multiple of 8";
  }
  constexpr Index most = std::numeric_limits<int>::max() / 2;
  const Index largest = std::max({s.tokens, s.vocab, s.student.hidden, s.teacher.hidden});
  if (largest > most)
    return "a size is " + std::to_string(largest) + ", and the most is " + std::to_string(most);
  return "";
}

bool can_map(const fljsd_tensors& t) {
  for (const void* data : {t.student_input, t.student_weight, t.teacher_input, t.teacher_weight}) {
    if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0) return false;
  }
  return true;
}

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
