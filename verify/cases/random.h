// SPDX-License-Identifier: Apache-2.0
// Random numbers without state: element i of a stream is a pure function of (seed, stream, i).
//
// So tensors are generated in parallel, in any order or in part, and come out the same everywhere. Only
// integer operations and exact or correctly rounded double operations are used; std::normal_distribution and
// its relatives differ between standard libraries.
#pragma once

#include <cstdint>

#include "reference/dtype.h"

namespace fljsd {

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014): output number
// `index` of the generator that starts at `key`. The additive constant is 2^64 divided by the golden ratio;
// the multipliers are those of David Stafford's mixer 13.
constexpr std::uint64_t splitmix64(std::uint64_t key, std::uint64_t index) {
  std::uint64_t z = key + (index + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// One stream of random numbers. All functions are pure; `i` is the number's place in the stream. Functions
// read the same words, so one stream should serve one purpose.
class Random {
 public:
  // All streams are pieces of one cycle of length 2^64 that start at hashed places: two streams of which 2^33
  // words are used overlap with probability 2^-30.
  constexpr Random(std::uint64_t seed, std::uint64_t stream)
      : key_(splitmix64(splitmix64(seed, 0), stream)) {}

  // 64 random bits.
  constexpr std::uint64_t word(Index i) const { return splitmix64(key_, static_cast<std::uint64_t>(i)); }

  // Uniform on 0 .. 255; eight numbers share a word.
  constexpr int byte(Index i) const { return static_cast<int>(word(i >> 3) >> 8 * (i & 7) & 0xff); }

  // Uniform on 0 .. count − 1, count >= 1: the high half of word · count. A value's probability is off by at
  // most 2^-64.
  constexpr Index below(Index i, Index count) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<Index>(Wide{word(i)} * static_cast<std::uint64_t>(count) >> 64);
  }

  // Uniform on the multiples of 2^-53 in [0, 1).
  constexpr double uniform(Index i) const { return static_cast<double>(word(i) >> 11) * 0x1p-53; }

  // Uniform on the odd multiples of 2^-53 in (−1, 1): symmetric, never 0, variance 1/3.
  constexpr double symmetric(Index i) const {
    return static_cast<double>(static_cast<std::int64_t>(word(i) >> 11) * 2 + 1 - (std::int64_t{1} << 53)) *
           0x1p-53;
  }

  // Nearly normal: the standardised sum of eight independent uniform 16-bit integers (Irwin–Hall). Mean 0,
  // variance 1, symmetric, excess kurtosis −0.15, spacing 1.9e-5. Its tails are lighter than a normal
  // variable's: beyond 3 it falls 0.61 times as often, beyond 4 0.066 times, beyond max_deviate = 4.9 never
  // (a normal variable: 1e-6).
  constexpr double deviate(Index i) const {
    const std::uint64_t a = word(2 * i), b = word(2 * i + 1);
    // 16-bit fields are added in 32-bit lanes: eight of them stay below 2^19.
    constexpr std::uint64_t even = 0x0000ffff0000ffff;
    const std::uint64_t lanes = (a & even) + (a >> 16 & even) + (b & even) + (b >> 16 & even);
    const auto sum = static_cast<std::int32_t>((lanes & 0xffffffff) + (lanes >> 32));
    // Twice the sum, less twice its mean, over twice its standard deviation sqrt(8 (2^32 − 1) / 12).
    return static_cast<double>(2 * sum - 8 * 65535) * deviate_scale;
  }
  static constexpr double deviate_scale = 0x1.3988e1412ed76p-17;
  static constexpr double max_deviate = 8 * 65535 * deviate_scale;  // sqrt(24) nearly

  bool operator==(const Random&) const = default;

 private:
  std::uint64_t key_;
};

// A random permutation of 0 .. size − 1 that stores nothing: four Feistel rounds on the smallest even number
// of bits that holds size, repeated until the value falls below size (cycle walking: fewer than four times on
// average).
class Permutation {
 public:
  Permutation(const Random& random, Index size);

  Index operator()(Index i) const;
  Index inverse(Index i) const;

 private:
  std::uint64_t round(std::uint64_t half, int number) const;

  Random random_;
  std::uint64_t size_;
  int half_bits_;
};

}  // namespace fljsd
