// SPDX-License-Identifier: Apache-2.0
// The two ways from totals of products to the values of a record: one at a time (Moments::value), and all at
// once as a warp takes them (one_pass_values.cuh).
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>

#include "cuda/one_pass_values.cuh"

namespace fljsd::cuda {
namespace {

template <class M, int step = 0>
void take_steps(std::array<float, M::count>& totals) {
  if constexpr (step < value_steps) {
    const std::array<float, M::count> before = totals;
    for (int i = 0; i < 5 * M::rows; ++i)
      totals[static_cast<std::size_t>(i)] = value_after<M, step>(before.data(), i);
    take_steps<M, step + 1>(totals);
  }
}

template <class M>
void expect_same_values() {
  std::array<float, M::count> totals;
  for (float& total : totals) total = static_cast<float>(*rc::gen::inRange(-1000, 1000)) / 16;
  std::array<float, M::count> all = totals;
  take_steps<M>(all);
  for (int i = 0; i < M::values; ++i) {
    RC_ASSERT(all[static_cast<std::size_t>(i)] == M::value(totals.data(), i));
  }
}

// Catches a wrong harmonic, index or sign in either: totals are such that all results are exact.
RC_GTEST_PROP(OnePassValues, TheWarpsStepsAndTheFormulaAgree, ()) {
  expect_same_values<Moments<Basis::twelve>>();
  expect_same_values<Moments<Basis::twenty_two>>();
}

}  // namespace
}  // namespace fljsd::cuda
