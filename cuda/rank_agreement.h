// SPDX-License-Identifier: Apache-2.0
// What the ranks of a group must agree on before they work together. A rank that differs, or that refused its
// own configuration, is an error on all of them, in one sentence, rather than a wrong result or a wait.
#pragma once

#include <string>
#include <vector>

#include "cuda/communicator.h"

namespace fljsd::cuda {

// A number that ranks compare, or that they only tell each other.
struct Term {
  enum class Kind { same, same_double, told };
  const char* field;
  Kind kind;
  std::int64_t bits;  // a double's, for same_double

  static Term same(const char* field, std::int64_t value) { return {field, Kind::same, value}; }
  static Term same(const char* field, double value);
  static Term told(const char* field, std::int64_t value) { return {field, Kind::told, value}; }
};

// Tells the group this rank's terms and whether it refused (then they may hold anything; their number is the
// same on all ranks). Returns the bits of all ranks, [ranks][terms]. Throws Failure(FLJSD_INVALID_ARGUMENT)
// on every rank, except one that refused, when a rank refused or a term differs. group: "vocabulary" or
// "token".
std::vector<std::int64_t> agree(const Communicator& communicator, const char* group,
                                const std::vector<Term>& terms, bool refused);

}  // namespace fljsd::cuda
