// SPDX-License-Identifier: Apache-2.0
// Anything that properties can be checked of: a function from a case to a result, and what it promises.
#pragma once

#include <functional>
#include <limits>
#include <string>

#include "reference/error_bound.h"
#include "reference/linear_jsd.h"
#include "verify/candidates/feature.h"
#include "verify/cases/case.h"

namespace fljsd {

struct Implementation {
  std::string name;

  // All losses and gradients, in natural units. Parts that it lacks are empty, and so may be the bias
  // gradient of a case without student_bias. It must answer every valid case that needs nothing in `lacks`;
  // what it throws is passed on.
  std::function<Result(const Case&)> compute;
  // The same for tensors with padded rows and unaligned addresses; absent if it cannot be given any.
  std::function<Result(const Problem&, const Options&)> compute_views;

  // A bound on |compute(...) − truth|; `near` is any good approximation of the truth. This is what every
  // property with a bound rests on.
  std::function<ErrorBound(const Case&, const Result& near)> bound;

  FeatureSet lacks;

  // The same input gives the same bits, wherever it lies and whatever ran before.
  bool deterministic = true;
  // Equal logits of both models give exactly 0: so it is for formulas of differences, but not where D is a
  // constant minus sums that cancel. Else 0 is only met within the bound.
  bool exact_zeros = true;
  // Ignored tokens are removed before anything is computed: without them the bits are the same.
  bool removes_ignored_tokens = false;

  // One operation may lose this much to underflow, and a result beyond `largest` may overflow.
  double smallest = std::numeric_limits<double>::denorm_min();
  double largest = std::numeric_limits<double>::max();
};

// linear_jsd<double> and its a-priori bound.
const Implementation& double_tier();

}  // namespace fljsd
