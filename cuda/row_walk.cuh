// SPDX-License-Identifier: Apache-2.0
// How the threads of the blocks that share a row walk over its logits, eight entries of both models at a
// time.
#pragma once

#include <cooperative_groups.h>

#include "cuda/device_math.cuh"
#include "cuda/row_kernels.h"

namespace fljsd::cuda {

// The blocks that share a row.
struct Team {
  unsigned rank, size;

  __device__ Team() {
#if __CUDA_ARCH__ >= 900
    rank = cooperative_groups::this_cluster().block_rank();
    size = cooperative_groups::this_cluster().num_blocks();
#else
    rank = 0;
    size = 1;
#endif
  }
  __device__ void sync() const {
#if __CUDA_ARCH__ >= 900
    if (size > 1) {
      cooperative_groups::this_cluster().sync();
      return;
    }
#endif
    __syncthreads();
  }
  // The variable of the same name in the shared memory of another block of the team.
  template <class T>
  __device__ const T* of(T* shared, unsigned other) const {
#if __CUDA_ARCH__ >= 900
    if (size > 1) return cooperative_groups::this_cluster().map_shared_rank(shared, other);
#endif
    return shared;
  }
};

// Eight entries of both models: two vectors of four. Entries past the vocabulary are −inf.
struct Batch {
  float x[8], y[8];
};

// Walks over a row, eight entries a thread at a time.
template <class Logit>
struct Cursor {
  const Logit* student;  // at this thread's next entry
  const Logit* teacher;
  int left;  // entries of the row from there on; the walk ends when there are none
  int step;  // entries from the first vector of a batch to the second

  __device__ __forceinline__ bool more() const { return left > 0; }
  __device__ __forceinline__ bool second() const {
    return left > step;
  }  // whether the batch has a second vector
  __device__ __forceinline__ void advance() {
    student += 2 * step;
    teacher += 2 * step;
    left -= 2 * step;
  }

  static __device__ __forceinline__ void put(const float4& v, float* out) {
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
  }
  static __device__ __forceinline__ void load_tail(const Logit* data, int left, float* out) {
    float4 v = make_float4(-infinity(), -infinity(), -infinity(), -infinity());
    if (left > 0) {
      v = load4(data);
      if (left < 2) v.y = -infinity();
      if (left < 3) v.z = -infinity();
      if (left < 4) v.w = -infinity();
    }
    put(v, out);
  }
  static __device__ __forceinline__ void add_bias(const float* bias, int left, float* out) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < left) out[i] += bias[i];
    }
  }
  __device__ __forceinline__ Batch load(const LogitRows& rows) const {
    Batch b;
    if (left >= step + 4) {
      put(load4(student), b.x);
      put(load4(teacher), b.y);
      put(load4(student + step), b.x + 4);
      put(load4(teacher + step), b.y + 4);
    } else {
      load_tail(student, left, b.x);
      load_tail(teacher, left, b.y);
      load_tail(student + step, left - step, b.x + 4);
      load_tail(teacher + step, left - step, b.y + 4);
    }
    const int at = static_cast<int>(rows.vocab) - left;
    if (rows.student_bias != nullptr) {
      add_bias(rows.student_bias + at, left, b.x);
      add_bias(rows.student_bias + at + step, left - step, b.x + 4);
    }
    if (rows.teacher_bias != nullptr) {
      add_bias(rows.teacher_bias + at, left, b.y);
      add_bias(rows.teacher_bias + at + step, left - step, b.y + 4);
    }
    return b;
  }
};

}  // namespace fljsd::cuda
