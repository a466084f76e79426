// SPDX-License-Identifier: Apache-2.0
// What the specification needs to run in fp32: divergence.h instantiated at Real = float.
//
// The three cancelling functions are evaluated in double and rounded once, as a kernel with a good series
// would have them. To be included before divergence.h is instantiated.
#pragma once

#include "reference/cancellation.h"
#include "reference/divergence.h"

namespace fljsd {

template <>
inline float psi<float>(const float& d) {
  return static_cast<float>(psi(static_cast<double>(d)));
}
template <>
inline float phi<float>(const float& z) {
  return static_cast<float>(phi(static_cast<double>(z)));
}
template <>
inline float log1p_gap<float>(const float& z) {
  return static_cast<float>(log1p_gap(static_cast<double>(z)));
}

}  // namespace fljsd
