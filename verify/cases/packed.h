// SPDX-License-Identifier: Apache-2.0
// The way back from tensors that lie anywhere in memory: the case that they are, and how they lie.
#pragma once

#include "verify/cases/layout.h"

namespace fljsd {

// Where the tensors of a LaidOutCase lie.
Layout layout_of(const Problem& problem);

// A case of its own, with its tensors packed, wherever they lie in `problem`.
Case packed(const Problem& problem, const Options& options);

}  // namespace fljsd
