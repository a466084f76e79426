// SPDX-License-Identifier: Apache-2.0
// Several records of a token (slices of a row, or shards of the vocabulary held by different ranks) become
// one record of the same form.
//
// The merge is that of one_pass_finish.cuh, in double, so a level of merging costs the 2^-48 of what is
// stored. Records are always taken in the order of their numbers: whoever merges the same records gets the
// same bits. A shard without entries has an empty record, which adds 0.
#pragma once

#include "cuda/one_pass_finish.cuh"

namespace fljsd::cuda {

// Frequency k of the sum of `count` records, at(0), at(1), ..., relative to `refs`, their largest ones.
template <class M, class At>
FLJSD_HOST_DEVICE FrequencySum sum_records(std::int64_t count, const At& at, const ModelReferences& refs,
                                           float scale, float phase_step, int k) {
  using Record = MomentRecord<M>;
  FrequencySum sum{0, 0, 0, 0};
  for (std::int64_t s = 0; s < count; ++s) {
    const float* record = at(s);
    sum.add(k, refs, Record::references(record), scale, phase_step, Record::sum_x(record),
            Record::sum_y(record), Record::re(record, k), Record::im(record, k));
  }
  return sum;
}

// Writes frequency k of a sum. Every k of 0..last must be done; k = 0 also writes S_x, S_y and the
// references.
template <class M>
FLJSD_HOST_DEVICE void set_frequency(float* out, int k, const FrequencySum& sum,
                                     const ModelReferences& refs) {
  using Record = MomentRecord<M>;
  if (k > 0) {
    Record::set_value(out, 2 * k - 1, sum.re);
    Record::set_value(out, 2 * k, sum.im);
    return;
  }
  Record::set_value(out, 0, sum.re);
  Record::set_value(out, M::values - 2, sum.x);
  Record::set_value(out, M::values - 1, sum.y);
  Record::set_references(out, refs);
  Record::set_zeros(out);
}

// Frequency k of the sum of `count` records into `out`, which is none of them.
template <class M, class At>
FLJSD_HOST_DEVICE void merge_records(std::int64_t count, const At& at, float scale, float phase_step, int k,
                                     float* out) {
  const ModelReferences refs =
      largest_references(count, scale, [&](std::int64_t s) { return MomentRecord<M>::references(at(s)); });
  set_frequency<M>(out, k, sum_records<M>(count, at, refs, scale, phase_step, k), refs);
}

// The same for beta = 0 and 1, a whole record.
template <class At>
FLJSD_HOST_DEVICE void merge_endpoint_records(std::int64_t count, const At& at, float log2_scale,
                                              float* out) {
  EndpointRecord::store(
      out, finish_kl(count, log2_scale, [&](std::int64_t s) { return EndpointRecord::load(at(s)); }));
}

}  // namespace fljsd::cuda
