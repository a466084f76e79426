// SPDX-License-Identifier: Apache-2.0
// 2^a and e^{2πi·turns} in float32, without branches or tables, so that loops over them vectorise. The
// results do not depend on the machine: everything is additions, multiplications and fused multiply-adds.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace fljsd {

// x rounded to the nearest whole number, ties to even, for |x| < 2^22: adding 1.5·2^23 leaves no room for a
// fraction.
inline float nearest_whole(float x) {
  constexpr float shift = 0x1.8p23f;
  return (x + shift) - shift;
}

// 2^a for a <= 127, relative error at most 2u (u = 2^-24); 0 for a < −126 (where float32 has no normal
// numbers).
//
// a = n + f with |f| <= 1/2, exactly. The Taylor series of 2^f stops after f^7: the next term is at most
// (ln 2 / 2)^8/8! < 0.1u. Rounding: the last step of Horner's rule adds 1 to a sum below 0.42, with one
// rounding (u·1.42 at the most, relative to the result u); the coefficient and the sum before it err by 1.5u
// of 0.42.
inline float exp2_float(float a) {
  const float inside = a < -126.0f ? -126.0f : a;
  const float n = nearest_whole(inside);
  const float f = inside - n;
  float sum = 0x1.ffcbfcp-17f;              // (ln 2)^7/7!
  sum = std::fma(sum, f, 0x1.430912p-13f);  // (ln 2)^6/6!
  sum = std::fma(sum, f, 0x1.5d87fep-10f);  // (ln 2)^5/5!
  sum = std::fma(sum, f, 0x1.3b2ab6p-7f);   // (ln 2)^4/4!
  sum = std::fma(sum, f, 0x1.c6b08ep-5f);   // (ln 2)^3/3!
  sum = std::fma(sum, f, 0x1.ebfbep-3f);    // (ln 2)^2/2!
  sum = std::fma(sum, f, 0x1.62e43p-1f);    // ln 2
  sum = std::fma(sum, f, 1.0f);
  const float power = std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
  return a < -126.0f ? 0.0f : sum * power;
}

struct SineCosine {
  float sine, cosine;
};

// sin and cos of 2π·turns for |turns| <= 1/2, absolute error at most 2u; exactly 0 and 1 at 0.
//
// turns = j/4 + r with |r| <= 1/8, exactly (for j != 0 the two are within a factor 2 of each other, or r is
// turns' own trailing digits). Taylor series in r stop after r^9 and r^10: the next terms are below
// (π/4)^11/11! < 0.1u and (π/4)^12/12! < 0.1u.
inline SineCosine sine_cosine_of_turns(float turns) {
  const float j = nearest_whole(4 * turns);
  const float r = std::fma(j, -0.25f, turns);
  const float square = r * r;
  float odd = 0x1.507834p+5f;                    // (2π)^9/9!
  odd = std::fma(odd, square, -0x1.32d2ccp+6f);  // −(2π)^7/7!
  odd = std::fma(odd, square, 0x1.466bc6p+6f);   // (2π)^5/5!
  odd = std::fma(odd, square, -0x1.4abbcep+5f);  // −(2π)^3/3!
  odd = std::fma(odd, square, 0x1.921fb6p+2f);   // 2π
  odd *= r;
  float even = -0x1.a6d1f2p+4f;                    // −(2π)^10/10!
  even = std::fma(even, square, 0x1.e1f506p+5f);   // (2π)^8/8!
  even = std::fma(even, square, -0x1.55d3c8p+6f);  // −(2π)^6/6!
  even = std::fma(even, square, 0x1.03c1f0p+6f);   // (2π)^4/4!
  even = std::fma(even, square, -0x1.3bd3ccp+4f);  // −(2π)^2/2!
  even = std::fma(even, square, 1.0f);
  // e^{2πi(j/4 + r)}: a quarter turn swaps sine and cosine, and half a turn changes both signs.
  const std::int32_t quarter = static_cast<std::int32_t>(j);
  const float sine = quarter & 1 ? even : odd, cosine = quarter & 1 ? odd : even;
  return {quarter & 2 ? -sine : sine, (quarter + 1) & 2 ? -cosine : cosine};
}

}  // namespace fljsd
