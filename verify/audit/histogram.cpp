// SPDX-License-Identifier: Apache-2.0
#include "verify/audit/histogram.h"

#include <algorithm>
#include <cmath>

namespace fljsd {
namespace {

double edge(int index) {
  return std::pow(10.0, static_cast<double>(index) / Histogram::bins_per_decade);
}

// The bin that holds `error`; the logarithm alone could put a value at an edge into the neighbour.
int bin_of(double error) {
  int bin = static_cast<int>(std::floor(Histogram::bins_per_decade * std::log10(error)));
  if (error < edge(bin)) --bin;
  if (error >= edge(bin + 1)) ++bin;
  return bin;
}

}  // namespace

double Histogram::low(std::size_t bin) const {
  return edge(first + static_cast<int>(bin));
}

double Histogram::high(std::size_t bin) const {
  return edge(first + static_cast<int>(bin) + 1);
}

Histogram histogram(std::span<const double> errors) {
  Histogram h;
  std::vector<int> bins;
  for (const double error : errors) {
    ++h.total;
    if (!std::isfinite(error)) {
      ++h.not_finite;
    } else if (error == 0) {
      ++h.zero;
    } else {
      bins.push_back(bin_of(error));
    }
  }
  if (bins.empty()) return h;
  const auto [least, most] = std::minmax_element(bins.begin(), bins.end());
  h.first = *least;
  h.counts.resize(static_cast<std::size_t>(*most - *least + 1));
  for (const int bin : bins) ++h.counts[static_cast<std::size_t>(bin - h.first)];
  return h;
}

}  // namespace fljsd
