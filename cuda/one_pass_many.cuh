// SPDX-License-Identifier: Apache-2.0
// The sum of many records of a row, by a block of threads: sum_records() up to roundings in double. A
// thread a record finds what turns its frequencies, which are powers of one number: a sine and a cosine cost
// as much as twenty products in double. A thread a frequency of a record turns it, so that neighbours read
// neighbours, and one warp adds up the records in order.
#pragma once

#include "cuda/device_math.cuh"
#include "cuda/one_pass_kernels.h"
#include "cuda/shard_merge.cuh"

namespace fljsd::cuda {

constexpr Index many_records = 8;  // from here on a block takes a row, otherwise a warp
constexpr int many_records_threads = 128;
constexpr int merging_warps = 8;  // of a block, where a warp takes a row

// The largest references of records at(0), ..., at(count − 1), by a warp; right in lane 0 only.
template <class M, class At>
__device__ ModelReferences warp_references(Index count, const At& at, float scale, int lane) {
  const auto references = [&](Index s) { return MomentRecord<M>::references(at(s)); };
  ModelReferences largest = references(min(Index{lane}, count - 1));
  const auto join = [&](const ModelReferences& r) {
    if (r.x.total(scale) > largest.x.total(scale)) largest.x = r.x;
    if (r.y.total(scale) > largest.y.total(scale)) largest.y = r.y;
  };
  for (Index s = lane + 32; s < count; s += 32) join(references(s));
  for (int distance = 16; distance > 0; distance /= 2) {
    const auto below = [&](float value) { return __shfl_down_sync(all_lanes, value, distance); };
    join({{below(largest.x.base), below(largest.x.units)}, {below(largest.y.base), below(largest.y.units)}});
  }
  return largest;
}

// Record s is at(s). Every thread of the block must call it. Frequency min(lane, last) for the threads of the
// first warp, nothing for the others; `refs` for all threads.
template <class M, class At>
__device__ FrequencySum sum_many(Index count, const At& at, float scale, float phase_step,
                                 ModelReferences& refs) {
  using Record = MomentRecord<M>;
  constexpr int batch = 64, frequencies = M::last + 1;
  static_assert(batch <= many_records_threads);
  struct Complex {
    double re, im;
    __device__ Complex operator*(const Complex& o) const {
      return {re * o.re - im * o.im, re * o.im + im * o.re};
    }
  };
  struct Summand {
    Shrink shrink;
    double x, y;
    Complex turned[frequencies];  // first what turns them
  };
  __shared__ ModelReferences row_refs;
  __shared__ Summand summands[batch];
  const int thread = static_cast<int>(threadIdx.x);
  const bool adds = thread < 32;
  if (adds) {
    const ModelReferences largest = warp_references<M>(count, at, scale, thread);
    if (thread == 0) row_refs = largest;
  }
  __syncthreads();
  refs = row_refs;
  FrequencySum sum{0, 0, 0, 0};
  for (Index first = 0; first < count; first += batch) {
    const int here = static_cast<int>(min(Index{batch}, count - first));
    if (thread < here) {
      const float* record = at(first + thread);
      Summand& summand = summands[thread];
      const Turn turn(Record::references(record), refs, scale, phase_step);
      summand.shrink = Shrink(turn);
      summand.x = Record::sum_x(record);
      summand.y = Record::sum_y(record);
      Complex once{1, 0}, power{1, 0};
      turn.turn(1, once.re, once.im);
#pragma unroll
      for (Complex& turns : summand.turned) turns = power, power = power * once;
    }
    __syncthreads();
    for (int i = thread; i < here * frequencies; i += many_records_threads) {
      const int s = i / frequencies, k = i % frequencies;
      const float* record = at(first + s);
      Complex& turned = summands[s].turned[k];
      turned = turned * Complex{Record::re(record, k), Record::im(record, k)};
    }
    __syncthreads();
    if (adds) {
      for (int s = 0; s < here; ++s) {
        const Summand& summand = summands[s];
        const Complex& phi = summand.turned[min(thread, M::last)];
        sum.add(summand.shrink, summand.x, summand.y, phi.re, phi.im);
      }
    }
    __syncthreads();
  }
  return sum;
}

}  // namespace fljsd::cuda
