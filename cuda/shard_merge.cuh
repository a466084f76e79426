// SPDX-License-Identifier: Apache-2.0
// Records of the one-pass statistics as numbers that travel: several records of a token (slices of a row, or
// shards of the vocabulary held by different ranks) become one record of the same form.
//
// The merge is that of one_pass_finish.cuh, in double, and its result is stored as hi + lo, two floats, so a
// level of merging costs 2^-48 of each sum. Records are always taken in the order of their numbers: whoever
// merges the same records gets the same bits. A shard without entries has an empty record, which adds 0.
#pragma once

#include "cuda/one_pass_finish.cuh"

namespace fljsd::cuda {

// value = hi + lo to 2^-48 of itself. An infinite or NaN sum is its own answer.
FLJSD_HOST_DEVICE void split_double(double value, float& hi, float& lo) {
  hi = static_cast<float>(value);
  lo = fabsf(hi) < infinity() ? static_cast<float>(value - static_cast<double>(hi)) : 0;
}

// How a record for 0 < beta < 1 lies in memory: hi of the values, references, zeros; then lo, zeros.
template <class M>
struct MomentRecord {
  static constexpr int floats = 2 * M::stride;

  static FLJSD_HOST_DEVICE ModelReferences references(const float* record) {
    const float* at = record + M::values;
    return {{at[0], at[1]}, {at[2], at[3]}};
  }
  static FLJSD_HOST_DEVICE double value(const float* record, int i) {
    return static_cast<double>(record[i]) + static_cast<double>(record[M::stride + i]);
  }
  static FLJSD_HOST_DEVICE void set_value(float* record, int i, double value) {
    split_double(value, record[i], record[M::stride + i]);
  }
  static FLJSD_HOST_DEVICE void set_references(float* record, const ModelReferences& refs) {
    float* at = record + M::values;
    at[0] = refs.x.base, at[1] = refs.x.units, at[2] = refs.y.base, at[3] = refs.y.units;
    for (int i = M::values + reference_floats; i < M::stride; ++i) record[i] = 0;
    for (int i = M::stride + M::values; i < floats; ++i) record[i] = 0;
  }
  static FLJSD_HOST_DEVICE void set_empty(float* record) {
    for (int i = 0; i < M::values; ++i) record[i] = record[M::stride + i] = 0;
    set_references(record, {Reference::empty(), Reference::empty()});
  }

  static FLJSD_HOST_DEVICE double sum_x(const float* record) { return value(record, M::values - 2); }
  static FLJSD_HOST_DEVICE double sum_y(const float* record) { return value(record, M::values - 1); }
  static FLJSD_HOST_DEVICE double re(const float* record, int k) {
    return value(record, k == 0 ? 0 : 2 * k - 1);
  }
  static FLJSD_HOST_DEVICE double im(const float* record, int k) { return k == 0 ? 0 : value(record, 2 * k); }

  // Frequency k of the sum of `count` records, at(0), at(1), ..., relative to `refs`, their largest ones.
  template <class At>
  static FLJSD_HOST_DEVICE FrequencySum sum(std::int64_t count, const At& at, const ModelReferences& refs,
                                            float scale, float phase_step, int k) {
    FrequencySum sum{0, 0, 0, 0};
    for (std::int64_t s = 0; s < count; ++s) {
      const float* record = at(s);
      sum.add(k, refs, references(record), scale, phase_step, sum_x(record), sum_y(record), re(record, k),
              im(record, k));
    }
    return sum;
  }
  // Writes frequency k of a sum. Every k of 0..last must be done; k = 0 also writes S_x, S_y and the
  // references.
  static FLJSD_HOST_DEVICE void set_frequency(float* out, int k, const FrequencySum& sum,
                                              const ModelReferences& refs) {
    if (k > 0) {
      set_value(out, 2 * k - 1, sum.re);
      set_value(out, 2 * k, sum.im);
      return;
    }
    set_value(out, 0, sum.re);
    set_value(out, M::values - 2, sum.x);
    set_value(out, M::values - 1, sum.y);
    set_references(out, refs);
  }
  // Frequency k of the sum of `count` records into `out`, which is none of them.
  template <class At>
  static FLJSD_HOST_DEVICE void merge(std::int64_t count, const At& at, float scale, float phase_step, int k,
                                      float* out) {
    const ModelReferences refs =
        largest_references(count, scale, [&](std::int64_t s) { return references(at(s)); });
    set_frequency(out, k, sum(count, at, refs, scale, phase_step, k), refs);
  }
};

// The same for beta = 0 and 1: hi and lo of three sums, and what they are relative to.
struct EndpointRecord {
  static constexpr int floats = 9;

  static FLJSD_HOST_DEVICE KlRecord load(const float* r) {
    const auto value = [&](int i) { return static_cast<double>(r[i]) + static_cast<double>(r[3 + i]); };
    return {{r[6], r[7], r[8]}, {value(0), value(1), value(2)}};
  }
  static FLJSD_HOST_DEVICE void store(float* r, const KlRecord& record) {
    split_double(record.sums.first, r[0], r[3]);
    split_double(record.sums.second, r[1], r[4]);
    split_double(record.sums.mean, r[2], r[5]);
    r[6] = record.ref.top, r[7] = record.ref.pivot, r[8] = record.ref.other;
  }
  static FLJSD_HOST_DEVICE void set_empty(float* r) { store(r, {KlReference::empty(), {0, 0, 0}}); }

  template <class At>
  static FLJSD_HOST_DEVICE void merge(std::int64_t count, const At& at, float log2_scale, float* out) {
    store(out, finish_kl(count, log2_scale, [&](std::int64_t s) { return load(at(s)); }));
  }
};

}  // namespace fljsd::cuda
