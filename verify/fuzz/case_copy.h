// SPDX-License-Identifier: Apache-2.0
// Cases as bytes: copies that a candidate may be given, whether it has changed them, and what a case is known
// by.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "verify/cases/case.h"

namespace fljsd {

// The same case at other addresses. Each tensor has its own allocation with nothing behind its last element.
Case deep_copy(const Case& c);

// The first tensor that is not, bit for bit, the same in both problems, which have the same shapes but may
// lie differently in memory: "student_weight", "labels".
std::optional<std::string> first_difference(const Problem& a, const Problem& b);

// A hash of everything that an answer depends on: tensors with shapes and dtypes, labels, options. Two
// different cases of one campaign share it with probability 2^-64 a pair, for cases that nobody chose to
// collide.
std::uint64_t fingerprint(const Case& c);

}  // namespace fljsd
