// SPDX-License-Identifier: Apache-2.0
// The order in which a pipeline adds up many numbers of one kind: a row of the vocabulary, or losses of
// tokens.
#pragma once

#include <array>
#include <cstddef>

#include "reference/real.h"

namespace fljsd {

// In fp32, as a block of 1024 GPU threads does it: thread i adds the terms i, i + 1024, ... in that order,
// then the 1024 sums are halved by adding the upper half to the lower until one is left. In float64,
// compensated.
template <class Real>
class TreeSum;

template <>
class TreeSum<double> : public Sum<double> {};

template <>
class TreeSum<float> {
 public:
  void add(float term) { lanes_[count_++ % lanes_.size()] += term; }
  float value() const {
    auto lanes = lanes_;
    for (std::size_t half = lanes.size() / 2; half > 0; half /= 2)
      for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    return lanes[0];
  }

 private:
  std::array<float, 1024> lanes_{};
  std::size_t count_ = 0;
};

}  // namespace fljsd
