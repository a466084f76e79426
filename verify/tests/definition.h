// SPDX-License-Identifier: Apache-2.0
// The divergence by its definition, in 100 digits: softmax, mixture, logarithms, and nothing clever. It
// shares no formula with reference/divergence.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/real.h"

namespace fljsd::definition {

// Probabilities of a row of logits; −inf has probability 0.
inline std::vector<Real100> softmax(const std::vector<Real100>& logits) {
  const Real100 max = *std::max_element(logits.begin(), logits.end());
  std::vector<Real100> probabilities;
  Real100 sum = 0;
  for (const Real100& logit : logits) {
    probabilities.push_back(exp(logit - max));
    sum += probabilities.back();
  }
  for (Real100& probability : probabilities) probability /= sum;
  return probabilities;
}

// Σ a·log(a/b), where 0·log 0 = 0.
inline Real100 kl(const std::vector<Real100>& a, const std::vector<Real100>& b) {
  Real100 sum = 0;
  for (std::size_t v = 0; v < a.size(); ++v)
    if (a[v] != 0) sum += a[v] * log(a[v] / b[v]);
  return sum;
}

inline std::vector<Real100> mixture(const std::vector<Real100>& p, const std::vector<Real100>& q,
                                    double beta) {
  std::vector<Real100> m(p.size());
  for (std::size_t v = 0; v < p.size(); ++v) m[v] = beta * p[v] + (1 - Real100(beta)) * q[v];
  return m;
}

// D of student logits x and teacher logits y.
inline Real100 divergence(const std::vector<Real100>& x, const std::vector<Real100>& y, double beta) {
  const std::vector<Real100> q = softmax(x), p = softmax(y);
  if (beta == 0) return kl(p, q);
  if (beta == 1) return kl(q, p);
  const std::vector<Real100> m = mixture(p, q, beta);
  return beta * kl(p, m) + (1 - Real100(beta)) * kl(q, m);
}

inline std::vector<Real100> widen(const std::vector<double>& row) {
  return std::vector<Real100>(row.begin(), row.end());
}

}  // namespace fljsd::definition
