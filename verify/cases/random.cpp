// SPDX-License-Identifier: Apache-2.0
#include "verify/cases/random.h"

#include <bit>

namespace fljsd {
namespace {

constexpr int rounds = 4;

}  // namespace

Permutation::Permutation(const Random& random, Index size)
    : random_(random), size_(static_cast<std::uint64_t>(size)) {
  const int bits = static_cast<int>(std::bit_width(size_ - (size_ > 0)));
  half_bits_ = (bits + 1) / 2;
}

std::uint64_t Permutation::round(std::uint64_t half, int number) const {
  const std::uint64_t mixed = random_.word(static_cast<Index>(half * rounds) + number);
  return mixed & ((std::uint64_t{1} << half_bits_) - 1);
}

Index Permutation::operator()(Index i) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t value = static_cast<std::uint64_t>(i);
  do {
    std::uint64_t left = value >> half_bits_, right = value & mask;
    for (int number = 0; number < rounds; ++number) {
      const std::uint64_t next = left ^ round(right, number);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= size_);
  return static_cast<Index>(value);
}

Index Permutation::inverse(Index i) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t value = static_cast<std::uint64_t>(i);
  do {
    std::uint64_t left = value >> half_bits_, right = value & mask;
    for (int number = rounds; number-- > 0;) {
      const std::uint64_t previous = right ^ round(left, number);
      right = left;
      left = previous;
    }
    value = left << half_bits_ | right;
  } while (value >= size_);
  return static_cast<Index>(value);
}

}  // namespace fljsd
