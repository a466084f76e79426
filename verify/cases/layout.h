// SPDX-License-Identifier: Apache-2.0
// The same case elsewhere in memory: padded rows and unaligned addresses.
#pragma once

#include <memory>
#include <vector>

#include "verify/cases/case.h"

namespace fljsd {

struct Layout {
  Index row_padding = 0;         // elements between the rows of each matrix, filled with NaN
  std::size_t misalignment = 0;  // bytes that each tensor starts past a 64-byte boundary; any number < 64

  bool is_plain() const { return row_padding == 0 && misalignment == 0; }
};

// Owns copies of a case's tensors, laid out as told. Nothing follows the last element of a tensor, so that
// reading past it is an error that AddressSanitizer sees.
class LaidOutCase {
 public:
  LaidOutCase(const Case& c, const Layout& layout);
  LaidOutCase(const LaidOutCase&) = delete;
  LaidOutCase& operator=(const LaidOutCase&) = delete;

  // Views into this object and into the case's labels: valid while both live.
  const Problem& problem() const { return problem_; }

 private:
  const void* copy(DType dtype, const void* data, Index rows, Index cols, Index row_stride);

  Layout layout_;
  std::vector<std::shared_ptr<std::byte>> buffers_;
  Problem problem_;
};

}  // namespace fljsd
