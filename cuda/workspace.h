// SPDX-License-Identifier: Apache-2.0
// Cuts the caller's workspace into arrays. A stage lays its arrays out in one function, which runs once
// without memory to measure and again in every call to place.
#pragma once

#include <cstddef>

#include "cuda/settings.h"

namespace fljsd::cuda {

class Workspace {
 public:
  static constexpr Index alignment = 256;

  // null only measures: take() then returns pointers that must not be used.
  explicit Workspace(std::byte* base) : base_(base) {}

  // An array of `count` elements at a multiple of 256 bytes.
  template <class T>
  T* take(Index count) {
    return static_cast<T*>(take_bytes(count * static_cast<Index>(sizeof(T))));
  }
  void* take(fljsd_dtype dtype, Index count) { return take_bytes(count * size_of(dtype)); }

  Index used() const { return used_; }

 private:
  void* take_bytes(Index bytes) {
    const Index start = used_;
    used_ += round_up(bytes, alignment);
    return base_ == nullptr ? nullptr : base_ + start;
  }

  std::byte* base_;
  Index used_ = 0;
};

}  // namespace fljsd::cuda
