// SPDX-License-Identifier: Apache-2.0
#include "reference/error_bound/sum_error.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "reference/error_bound/roundoff.h"

namespace fljsd {
namespace {

// What one accumulator costs whose exact result is `total` = S.
struct Accumulator {
  double total = 0;
  double aligned = 0;  // roundings that may all go the same way, in units of u·S
  double squares = 0;  // Σ k² over groups of k roundings, each group mean independent of the others
  double lost = 0;     // Σ of the terms of at most u·S
};

// Sizes of groups of terms above `threshold`: a group's terms lie within `width` of its smallest.
std::vector<double> group_sizes(std::span<const double> terms, double threshold, double width) {
  std::vector<double> large;
  std::copy_if(terms.begin(), terms.end(), std::back_inserter(large),
               [=](double m) { return m > threshold; });
  std::sort(large.begin(), large.end());
  std::vector<double> sizes;
  double first = 0;
  for (const double m : large) {
    if (sizes.empty() || m > first + width) {
      sizes.push_back(0);
      first = m;
    }
    ++sizes.back();
  }
  return sizes;
}

// While a partial sum stays below a power of two it is a multiple of a spacing U, u·S to 2u·S near the end,
// and adding m errs by what m is off the multiples of U: by the same for equal m, and by nearly the same for
// terms that differ by a fraction of U. So terms within u·S/16 of each other form a group whose roundings may
// all go one way. (Neighbouring groups may do so together: g of k terms are off by g·k at most, less than
// lambda·sqrt(g)·k up to g = lambda² >= 64, which is four spacings.) The largest groups are counted in full,
// as many as gives the smallest bound: every division into groups in full and groups at random is one.
Accumulator accumulate(std::span<const double> terms, double u, double lambda) {
  Accumulator result;
  for (const double m : terms) result.total += m;
  const double threshold = u * result.total;
  for (const double m : terms)
    if (!(m > threshold)) result.lost += m;

  std::vector<double> groups = group_sizes(terms, threshold, threshold / 16);
  std::sort(groups.begin(), groups.end(), std::greater<>());
  double squares = 0;
  for (const double k : groups) squares += k * k;
  double aligned = 0, best = lambda * std::sqrt(2 * squares);
  result.squares = squares;
  for (const double k : groups) {
    if (k == 1) break;  // single terms gain nothing: n roundings for lambda·sqrt(2n)
    aligned += k;
    squares = std::max(0.0, squares - k * k);
    const double cost = aligned + lambda * std::sqrt(2 * squares);
    if (!(cost < best)) continue;
    best = cost;
    result.aligned = aligned;
    result.squares = squares;
  }
  return result;
}

}  // namespace

double sum_error(std::span<const double> magnitudes, double u, double lambda) {
  double total = 0;
  for (const double m : magnitudes) total += m;
  const auto count = static_cast<double>(magnitudes.size());
  const double worst = gamma(count, u) * total;
  // As few as 2·lambda² roundings are bounded no better by statistics.
  if (!(lambda > 0) || !(total > 0) || !(count > 2 * lambda * lambda)) return worst;

  double squares = 0, roundings = 0, in_full = 0;
  const auto take = [&](const Accumulator& a) {
    squares += 2 * a.squares * a.total * a.total;
    roundings += 2 * a.squares;
    // Terms of at most u·S cost at most themselves, once. They may also join to partial sums above u·S, as
    // many as lost/(u·S), and equal ones among those are rounded alike: that is u·S for each.
    in_full += u * a.aligned * a.total + 2 * a.lost;
  };
  std::vector<double> pieces;
  for (std::size_t first = 0; first < magnitudes.size(); first += longest_accumulation) {
    const auto piece = magnitudes.subspan(first, std::min(longest_accumulation, magnitudes.size() - first));
    const Accumulator accumulator = accumulate(piece, u, lambda);
    take(accumulator);
    pieces.push_back(accumulator.total);
  }
  take(accumulate(pieces, u, lambda));
  // Partial sums exceed the exact ones, and small terms that join among themselves first grow, by this at
  // most.
  in_full *= 1 + gamma(static_cast<double>(std::min(longest_accumulation, magnitudes.size())), u);
  return std::min(worst, martingale_error(squares, roundings, u, lambda) + in_full);
}

}  // namespace fljsd
