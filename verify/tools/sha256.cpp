// SPDX-License-Identifier: Apache-2.0
#include "verify/tools/sha256.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace fljsd {
namespace {

using Words = std::array<std::uint32_t, 64>;

// floor(2^32 · frac(root(prime))) for the first `count` primes: FIPS 180-4 defines its constants so, by
// square roots (degree 2) and cube roots (degree 3). Found by bisection in integers: the largest x with
// x^degree <= prime · 2^(32·degree).
Words fractions_of_roots(std::size_t count, int degree) {
  __extension__ using Wide = unsigned __int128;
  Words words{};
  std::size_t found = 0;
  for (std::uint64_t candidate = 2; found < count; ++candidate) {
    bool prime = true;
    for (std::uint64_t d = 2; d * d <= candidate; ++d) prime = prime && candidate % d != 0;
    if (!prime) continue;
    std::uint64_t low = 0,
                  high = std::uint64_t{1} << 37;  // a cube root of 311 is below 2^3, a square root of 53 too
    while (high - low > 1) {
      const std::uint64_t middle = (low + high) / 2;
      // Powers of up to 2^111 fit.
      Wide power = 1;
      for (int i = 0; i < degree; ++i) power *= middle;
      (power <= Wide{candidate} << 32 * degree ? low : high) = middle;
    }
    words[found++] = static_cast<std::uint32_t>(low);
  }
  return words;
}

// Sections 4.1.2 and 6.2.2: one block of 64 bytes.
void mix(std::array<std::uint32_t, 8>& state, const unsigned char* block, const Words& k) {
  Words w{};
  for (std::size_t t = 0; t < 16; ++t) {
    for (std::size_t i = 0; i < 4; ++i) w[t] = w[t] << 8 | block[4 * t + i];
  }
  for (std::size_t t = 16; t < 64; ++t) {
    const std::uint32_t a = w[t - 15], b = w[t - 2];
    w[t] = w[t - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[t - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t t = 0; t < 64; ++t) {
    const std::uint32_t t1 =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + k[t] + w[t];
    const std::uint32_t t2 =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<std::uint32_t, 8> added{a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state[i] += added[i];
}

}  // namespace

std::string sha256(std::string_view bytes) {
  static const Words k = fractions_of_roots(64, 3);
  static const Words initial = fractions_of_roots(8, 2);
  std::array<std::uint32_t, 8> state{};
  std::copy_n(initial.begin(), 8, state.begin());

  // The message, a single 1 bit, zeros up to 56 modulo 64 bytes, and the length in bits, big-endian.
  std::string padded(bytes);
  padded += '\x80';
  padded.append((120 - padded.size() % 64) % 64, '\0');
  const std::uint64_t bits = std::uint64_t{bytes.size()} * 8;
  for (int shift = 56; shift >= 0; shift -= 8) padded += static_cast<char>(bits >> shift & 0xff);
  for (std::size_t i = 0; i < padded.size(); i += 64)
    mix(state, reinterpret_cast<const unsigned char*>(padded.data()) + i, k);

  std::string text;
  for (const std::uint32_t word : state) text += fmt::format("{:08x}", word);
  return text;
}

}  // namespace fljsd
