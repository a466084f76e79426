// SPDX-License-Identifier: Apache-2.0
// One-pass KL(a‖b) of two rows of logits, for beta = 0 (KL(p‖q)) and beta = 1 (KL(q‖p)): exact, no
// quadrature.
//
//   Sa = Σ e^{a_v − max_a},  Sb = Σ e^{b_v − max_b},  T = Σ e^{a_v − max_a}·((a_v − max_a) − (b_v − max_b))
//   KL(a‖b) = Σ_v P_v·[(a_v − lse a) − (b_v − lse b)] = T/Sa − ln Sa + ln Sb,      P = softmax(a)
//
// The maxima cancel, so a large offset of either row does no harm. When they rise by Δa and Δb,
// T becomes e^{−Δa}·(T + (Δb − Δa)·Sa). A token that b excludes and a does not makes the divergence infinite.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/chernoff/accumulator.h"

namespace fljsd {

template <class Real>
struct KlSums {
  bool valid = true;      // no NaN and no +inf was seen
  bool infinite = false;  // a token with a_v finite and b_v = −inf was seen
  Real max_a = 0, max_b = 0;
  Real sum_a = 0, sum_b = 0, difference = 0;  // Sa, Sb, T
};

template <class Real>
struct KlResult {
  Real kl;                    // KL(a‖b), in [0, inf]; NaN when a row has no distribution
  Real log_sum_a, log_sum_b;  // ln Sa, ln Sb
};

template <class Real>
KlResult<Real> finalise(const KlSums<Real>& sums) {
  using std::log;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (!sums.valid || sums.max_a == -infinity || sums.max_b == -infinity) {
    const Real nan = std::numeric_limits<double>::quiet_NaN();
    return {nan, nan, nan};
  }
  const Real log_a = log(sums.sum_a), log_b = log(sums.sum_b);
  const Real kl = sums.infinite ? Real(infinity) : Real(sums.difference / sums.sum_a + (log_b - log_a));
  return {kl < 0 ? Real(0) : kl, log_a, log_b};
}

template <class Real>
class KlState {
 public:
  explicit KlState(MergeSum merge = MergeSum::compensated) : merge_(merge) {}

  void add(const Real& a, const Real& b) {
    using std::exp;
    if (!(a < infinity) || !(b < infinity)) valid_ = false;
    if (!valid_) return;
    raise(std::max(a, max_a_), std::max(b, max_b_));
    if (b > -infinity) sum_b_.add(exp(b - max_b_), merge_);
    if (!(a > -infinity)) return;
    const Real weight = exp(a - max_a_);
    sum_a_.add(weight, merge_);
    if (b > -infinity) {
      difference_.add(weight * ((a - max_a_) - (b - max_b_)), merge_);
    } else {
      infinite_ = true;
    }
  }

  const Real& max_a() const { return max_a_; }
  const Real& max_b() const { return max_b_; }
  void invalidate() { valid_ = false; }

  // Adds sums over entries that refer to the present maxima (see raise()).
  void add_sums(const Real& sum_a, const Real& sum_b, const Real& difference, bool infinite) {
    sum_a_.add(sum_a, merge_);
    sum_b_.add(sum_b, merge_);
    difference_.add(difference, merge_);
    infinite_ = infinite_ || infinite;
  }

  // Adds the entries of another state; they must be disjoint from those of this one.
  void merge(KlState other) {
    valid_ = valid_ && other.valid_;
    infinite_ = infinite_ || other.infinite_;
    if (!valid_) return;
    const Real max_a = std::max(max_a_, other.max_a_), max_b = std::max(max_b_, other.max_b_);
    raise(max_a, max_b);
    other.raise(max_a, max_b);
    sum_a_.add_wide(other.sum_a_.value(), merge_);
    sum_b_.add_wide(other.sum_b_.value(), merge_);
    difference_.add_wide(other.difference_.value(), merge_);
  }

  KlSums<Wide<Real>> sums() const {
    return {valid_, infinite_, max_a_, max_b_, sum_a_.value(), sum_b_.value(), difference_.value()};
  }

  // Makes max_a, max_b, at least as large as before, the reference of all sums.
  void raise(const Real& max_a, const Real& max_b) {
    using std::exp;
    const Wide<Real> rise_a =
        max_a > max_a_ && max_a_ > -infinity ? Wide<Real>(max_a) - Wide<Real>(max_a_) : Wide<Real>(0);
    const Wide<Real> rise_b =
        max_b > max_b_ && max_b_ > -infinity ? Wide<Real>(max_b) - Wide<Real>(max_b_) : Wide<Real>(0);
    max_a_ = max_a;
    max_b_ = max_b;
    // T's terms exist only where both maxima do; until then the product below adds nothing to a finite
    // result.
    if (rise_a > 0 || rise_b > 0) difference_.add_wide((rise_b - rise_a) * sum_a_.value(), merge_);
    if (rise_a > 0) {
      const Wide<Real> factor = exp(-rise_a);
      difference_.scale(factor, merge_);
      sum_a_.scale(factor, merge_);
    }
    if (rise_b > 0) sum_b_.scale(exp(-rise_b), merge_);
  }

 private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  MergeSum merge_;
  bool valid_ = true, infinite_ = false;
  Real max_a_ = -infinity, max_b_ = -infinity;
  Accumulator<Real> sum_a_, sum_b_, difference_;
};

}  // namespace fljsd
