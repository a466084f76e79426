// SPDX-License-Identifier: Apache-2.0
// How one-pass statistics lie in memory: a record for a slice of a token's row, for a shard of the
// vocabulary, or for the whole row. Every sum is hi + lo, two floats, so good to 2^-48 of itself.
#pragma once

#include "cuda/kl_sums.cuh"
#include "cuda/one_pass_moments.cuh"

namespace fljsd::cuda {

// What the logits of student and teacher are taken relative to.
struct ModelReferences {
  Reference x, y;
};

// An infinite or NaN sum is its own answer.
FLJSD_HOST_DEVICE void split_double(double value, float& hi, float& lo) {
  hi = static_cast<float>(value);
  lo = fabsf(hi) < infinity() ? static_cast<float>(value - static_cast<double>(hi)) : 0;
}

// 0 < beta < 1. hi of the values Φ_0, Re Φ_1, Im Φ_1, ..., S_x, S_y; references; zeros; lo of the values;
// zeros.
template <class M>
struct MomentRecord {
  static constexpr int floats = 2 * M::stride;
  static constexpr int lo = M::stride;  // value i is record[i] + record[lo + i]

  static FLJSD_HOST_DEVICE ModelReferences references(const float* record) {
    const float* at = record + M::values;
    return {{at[0], at[1]}, {at[2], at[3]}};
  }
  static FLJSD_HOST_DEVICE void set_references(float* record, const ModelReferences& refs) {
    float* at = record + M::values;
    at[0] = refs.x.base, at[1] = refs.x.units, at[2] = refs.y.base, at[3] = refs.y.units;
  }
  static FLJSD_HOST_DEVICE double value(const float* record, int i) {
    return static_cast<double>(record[i]) + static_cast<double>(record[lo + i]);
  }
  static FLJSD_HOST_DEVICE void set_value(float* record, int i, double value) {
    split_double(value, record[i], record[lo + i]);
  }
  static FLJSD_HOST_DEVICE double sum_x(const float* record) { return value(record, M::values - 2); }
  static FLJSD_HOST_DEVICE double sum_y(const float* record) { return value(record, M::values - 1); }
  static FLJSD_HOST_DEVICE double re(const float* record, int k) {
    return value(record, k == 0 ? 0 : 2 * k - 1);
  }
  static FLJSD_HOST_DEVICE double im(const float* record, int k) { return k == 0 ? 0 : value(record, 2 * k); }

  // Sweeps leave the zeros out: nobody reads them, but they travel with records that do.
  static FLJSD_HOST_DEVICE void set_zeros(float* record) {
    for (int i = M::values + reference_floats; i < lo; ++i) record[i] = 0;
    for (int i = lo + M::values; i < floats; ++i) record[i] = 0;
  }
  static FLJSD_HOST_DEVICE void set_empty(float* record) {
    for (int i = 0; i < M::values; ++i) record[i] = record[lo + i] = 0;
    set_references(record, {Reference::empty(), Reference::empty()});
    set_zeros(record);
  }
};

// What a record for beta = 0 and 1 says.
struct KlRecord {
  KlReference ref;
  KlState sums;
};

// hi of the three sums, lo of them, and their references.
struct EndpointRecord {
  static constexpr int sums = 3, lo = sums, floats = 2 * sums + 3;

  static FLJSD_HOST_DEVICE KlReference reference(const float* record) {
    const float* at = record + 2 * sums;
    return {at[0], at[1], at[2]};
  }
  static FLJSD_HOST_DEVICE void set_reference(float* record, const KlReference& ref) {
    float* at = record + 2 * sums;
    at[0] = ref.top, at[1] = ref.pivot, at[2] = ref.other;
  }
  static FLJSD_HOST_DEVICE KlRecord load(const float* record) {
    const auto value = [&](int i) {
      return static_cast<double>(record[i]) + static_cast<double>(record[lo + i]);
    };
    return {reference(record), {value(0), value(1), value(2)}};
  }
  static FLJSD_HOST_DEVICE void store(float* record, const KlRecord& content) {
    split_double(content.sums.first, record[0], record[lo]);
    split_double(content.sums.second, record[1], record[lo + 1]);
    split_double(content.sums.mean, record[2], record[lo + 2]);
    set_reference(record, content.ref);
  }
  static FLJSD_HOST_DEVICE void set_empty(float* record) { store(record, {KlReference::empty(), {0, 0, 0}}); }
};

}  // namespace fljsd::cuda
