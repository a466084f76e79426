// SPDX-License-Identifier: Apache-2.0
// The catalogue: what is true of the divergence, stated so that any implementation can be held to it.
//
// A property relates what an implementation says about one or more cases made from a given one. None needs to
// know the right answer, so each is a check on the reference as well. Most relate the exact answers of two
// cases, and then
//
//   |computed(B) − f(computed(A))| <= bound(B) + f(bound(A))
//
// by the triangle inequality, where f is the linear relation between the two exact answers. The
// transformations are chosen so that they are exact in the tensors' formats: no tolerance enters but the
// implementation's own bound.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "verify/cases/case.h"
#include "verify/properties/implementation.h"

namespace fljsd {

enum class Exactness {
  bitwise,  // equal bits where the implementation is deterministic, else within its bound
  bounded,  // within a bound that follows from the implementation's own
};

struct PropertyOutcome {
  bool passed = true;
  bool applicable = true;  // false: the case or the implementation is not one that the property speaks about
  // The comparison that came closest to failing, or failed: |difference| or excess, and what was allowed.
  double observed = 0;
  double allowed = 0;
  std::string text;  // one sentence: what failed, or why the property does not apply; empty when it holds
};

struct Property {
  std::string_view name;       // kebab-case
  std::string_view statement;  // one sentence
  Exactness exactness;
  std::string_view fault;  // a fault that it convicts
  std::string_view needs;  // of the case, beyond what its transformations need; "" for any case
  // Checks the property on cases made from `c`. `seed` decides what is free to choose: which permutation,
  // which power of two. Deterministic in its arguments if the implementation is.
  PropertyOutcome (*check)(const Case& c, const Implementation& implementation, std::uint64_t seed);
};

// The catalogue, in the order of documentation.
std::span<const Property> properties();

// Throws std::invalid_argument with a sentence that lists what exists.
const Property& find_property(std::string_view name);

}  // namespace fljsd
