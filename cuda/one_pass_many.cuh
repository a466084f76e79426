// SPDX-License-Identifier: Apache-2.0
// The sum of many records of a row, by a block of threads. Turning one frequency of one record takes a few
// hundred instructions in double, so threads share those, a batch of records at a time; one warp adds them up
// in order: the same operations as MomentRecord::sum(), and the same bits.
#pragma once

#include "cuda/chernoff_kernels.h"
#include "cuda/shard_merge.cuh"

namespace fljsd::cuda {

constexpr int many_records_threads = 256;
constexpr Index many_records = 8;  // from here on a block takes a row, otherwise a warp

// Record s is at(s). Every thread of the block must call it. Frequency min(lane, last) for the threads of the
// first warp, nothing for the others; `refs` for all threads.
template <class M, class At>
__device__ FrequencySum sum_many(Index count, const At& at, float scale, float phase_step,
                                 RowReferences& refs) {
  using Record = MomentRecord<M>;
  constexpr int batch = 48, frequencies = M::last + 1;
  struct Complex {
    double re, im;
  };
  __shared__ RowReferences row_refs;
  __shared__ Shrink shrink[batch];
  __shared__ Complex turned[batch][frequencies];
  const int thread = static_cast<int>(threadIdx.x), k = min(thread % 32, M::last);
  const bool adds = thread < 32;
  if (adds) {
    const RowReferences largest =
        row_references(count, scale, [&](std::int64_t s) { return Record::references(at(s)); });
    if (thread == 0) row_refs = largest;
  }
  __syncthreads();
  FrequencySum sum{0, 0, 0, 0};
  for (Index first = 0; first < count; first += batch) {
    const int here = static_cast<int>(min(Index{batch}, count - first));
    for (int i = thread; i < here * frequencies; i += many_records_threads) {
      const int s = i / frequencies, frequency = i % frequencies;
      const float* record = at(first + s);
      const Turn turn(Record::references(record), row_refs, scale, phase_step);
      Complex phi{Record::re(record, frequency), Record::im(record, frequency)};
      turn.turn(frequency, phi.re, phi.im);
      turned[s][frequency] = phi;
    }
    for (int s = thread; s < here; s += many_records_threads) {
      const Turn turn(Record::references(at(first + s)), row_refs, scale, phase_step);
      shrink[s] = Shrink(turn);
    }
    __syncthreads();
    if (adds) {
      for (int s = 0; s < here; ++s) {
        const float* record = at(first + s);
        sum.add(shrink[s], Record::sum_x(record), Record::sum_y(record), turned[s][k].re, turned[s][k].im);
      }
    }
    __syncthreads();
  }
  refs = row_refs;
  return sum;
}

}  // namespace fljsd::cuda
