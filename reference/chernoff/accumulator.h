// SPDX-License-Identifier: Apache-2.0
// A running sum in one working precision, plain or as an unevaluated pair of two numbers.
#pragma once

namespace fljsd {

// How partial sums are added to each other.
enum class MergeSum {
  plain,        // one addition: the error grows with the number of partial sums
  compensated,  // the error of each addition is kept in a second number
};
const char* name(MergeSum merge);

// The precision in which scale factors are computed and results are finalised: one step above the sums.
template <class Real>
struct Wider {
  using type = Real;
};
template <>
struct Wider<float> {
  using type = double;
};
template <class Real>
using Wide = typename Wider<Real>::type;

template <class Real>
class Accumulator {
 public:
  void add(Real term, MergeSum merge) {
    if (merge == MergeSum::plain) {
      high_ += term;
      return;
    }
    // TwoSum (Knuth): next + lost is high_ + term exactly, whichever is larger.
    const Real next = high_ + term;
    const Real from_term = next - high_;
    const Real lost = (high_ - (next - from_term)) + (term - from_term);
    high_ = next;
    low_ += lost;
  }

  // Adds a number of the wider precision without first rounding it away.
  void add_wide(Wide<Real> term, MergeSum merge) {
    const Real leading = static_cast<Real>(term);
    add(leading, merge);
    if (merge == MergeSum::compensated) low_ += static_cast<Real>(term - leading);
  }

  void scale(Wide<Real> factor, MergeSum merge) {
    if (merge == MergeSum::plain) {
      high_ *= static_cast<Real>(factor);
      return;
    }
    const Wide<Real> product = value() * factor;
    high_ = static_cast<Real>(product);
    low_ = static_cast<Real>(product - high_);
  }

  Wide<Real> value() const { return static_cast<Wide<Real>>(high_) + low_; }

 private:
  Real high_ = 0, low_ = 0;
};

}  // namespace fljsd
