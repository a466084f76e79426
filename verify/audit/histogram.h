// SPDX-License-Identifier: Apache-2.0
// Counts of errors on a logarithmic scale.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace fljsd {

// Bins of half a decade: bin i counts values in [10^((first + i)/2), 10^((first + i + 1)/2)).
struct Histogram {
  static constexpr int bins_per_decade = 2;
  int first = 0;
  std::vector<std::size_t> counts;  // no empty bin at either end
  std::size_t zero = 0;             // errors of exactly 0
  std::size_t not_finite = 0;       // NaN or infinite errors
  std::size_t total = 0;

  // The lower and the upper end of a bin.
  double low(std::size_t bin) const;
  double high(std::size_t bin) const;
};

// Of errors, which are never negative.
Histogram histogram(std::span<const double> errors);

}  // namespace fljsd
