// SPDX-License-Identifier: Apache-2.0
// The way of results to memory: accumulator fragments to shared memory, boxes from there to global memory.
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace fljsd::cuda::hopper {

// Two values rounded to the nearest, the first one in the low half.
template <class Element>
__device__ __forceinline__ std::uint32_t round_pair(float low, float high);
template <>
__device__ __forceinline__ std::uint32_t round_pair<__nv_bfloat16>(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
template <>
__device__ __forceinline__ std::uint32_t round_pair<__half>(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Four 8 x 8 matrices of two-byte elements. Lane l gives elements 2·(l % 4), + 1 of row l / 4 of each, and
// the address where row l % 8 of matrix l / 8 goes.
__device__ __forceinline__ void store_matrices(std::uint32_t address, std::uint32_t m0, std::uint32_t m1,
                                               std::uint32_t m2, std::uint32_t m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(m0),
               "r"(m1), "r"(m2), "r"(m3)
               : "memory");
}

// Makes a thread's writes to shared memory visible to the copy engine.
__device__ __forceinline__ void copy_engine_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Copies a box from shared memory to a matrix at (column, row). What lies outside the matrix is not written,
// with one exception that was observed and is documented nowhere: pieces of 16 bytes are written whole, so up
// to 14 bytes behind the last column of a row. Rows must leave room for that.
__device__ __forceinline__ void store_box(const CUtensorMap* map, std::uint32_t from, int column, int row) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"(from), "r"(column), "r"(row)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until shared memory has been read by all but the last `pending` copies of this thread.
template <int pending>
__device__ __forceinline__ void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

}  // namespace fljsd::cuda::hopper
