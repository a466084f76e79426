// SPDX-License-Identifier: Apache-2.0
// Rounding errors of a long sum of terms of one sign, of which a few may dominate: sums over the vocabulary,
// and of losses over tokens.
#pragma once

#include <cstddef>
#include <span>

namespace fljsd {

// No accumulator of a regular implementation runs over more terms than this: longer sums are cut into pieces
// (threads, tiles, blocks), and a piece may be summed in any order.
inline constexpr std::size_t longest_accumulation = 4096;

// Bound on the error of Σ terms in a format of unit roundoff u, given |terms|. lambda = 0: the worst case of
// any order whatsoever, gamma(n, u)·Σ|terms|. Else also the statistical bound for which rounding errors of
// terms that are nearly equal may be equal, and others are mean independent: docs/error_analysis.md,
// section 3.
double sum_error(std::span<const double> magnitudes, double u, double lambda);

}  // namespace fljsd
