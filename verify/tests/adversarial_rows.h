// SPDX-License-Identifier: Apache-2.0
// Rows of logits that try to break an error bound, and their divergence and gradients in 100 digits.
#pragma once

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "verify/tests/definition.h"

namespace fljsd::adversarial {

struct Row {
  std::vector<double> x, y;  // student and teacher
  double beta = 0.5;
};

// A choice among values, and a uniform number in [0, 1).
template <class T>
T pick(std::mt19937_64& random, std::initializer_list<T> values) {
  return *(values.begin() + random() % values.size());
}
inline double uniform(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1p-53;
}

// Logits that are exact in float32, of everything that makes rows difficult: nearly equal models, large
// common offsets, one dominating entry, spreads that underflow, entries that a model excludes, a beta close
// to an end. At least one entry stays possible in both models.
inline Row random_row(std::mt19937_64& random, std::size_t largest_vocab, bool endpoints = true) {
  const std::size_t vocab = 1 + random() % largest_vocab;
  const double spread = pick(random, {1e-6, 1e-3, 1.0, 3.0, 10.0, 60.0, 300.0});
  const double gap = pick(random, {0.0, 1e-6, 1e-4, 1e-2, 0.3, 1.0, 8.0, 200.0});
  const double offset_x = pick(random, {0.0, 0.0, 30.0, -1e4}),
               offset_y = pick(random, {0.0, 0.0, -7.0, 1e4});
  const int relation = static_cast<int>(random() % 4);  // related, independent, opposite, one peak each
  Row row;
  row.beta = endpoints ? pick(random, {0.0, 1e-30, 1e-12, 1e-3, 0.1, 0.5, 0.5, 0.9, 1 - 0x1p-30, 1.0})
                       : pick(random, {1e-30, 1e-12, 1e-3, 0.1, 0.5, 0.5, 0.9, 1 - 0x1p-30});
  for (std::size_t v = 0; v < vocab; ++v) {
    const double a = spread * (2 * uniform(random) - 1), b = gap * (2 * uniform(random) - 1);
    double x = a, y = a + b;
    if (relation == 1) y = spread * (2 * uniform(random) - 1);
    if (relation == 2) y = -a + b;
    if (relation == 3) x = random() % 8 ? -spread * uniform(random) : spread, y = x + b;
    row.x.push_back(static_cast<float>(offset_x + x));
    row.y.push_back(static_cast<float>(offset_y + y));
  }
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (random() % 4 == 0) {
    for (std::size_t v = 1; v < vocab; ++v) {
      if (random() % 4 == 0) row.x[v] = -infinity;
      if (random() % 4 == 0) row.y[v] = -infinity;
    }
  }
  return row;
}

// D, dD/dx and dD/dy.
struct Exact {
  Real100 divergence;
  std::vector<Real100> student_grad, teacher_grad;
};

inline std::vector<Real100> gradient(const std::vector<Real100>& own, const std::vector<Real100>& other,
                                     const Real100& weight) {
  std::vector<Real100> m(own.size()), grad(own.size());
  Real100 kl = 0;
  for (std::size_t v = 0; v < own.size(); ++v) {
    m[v] = (1 - weight) * other[v] + weight * own[v];
    if (own[v] != 0) kl += own[v] * log(own[v] / m[v]);
  }
  for (std::size_t v = 0; v < own.size(); ++v)
    grad[v] = own[v] == 0 ? Real100(0) : Real100(weight * own[v] * (log(own[v] / m[v]) - kl));
  return grad;
}

// D = KL(own‖other) as a function of the logits of `other`, and of those of `own`.
inline std::vector<Real100> kl_other_gradient(const std::vector<Real100>& own,
                                              const std::vector<Real100>& other) {
  std::vector<Real100> grad(own.size());
  for (std::size_t v = 0; v < own.size(); ++v) grad[v] = other[v] - own[v];
  return grad;
}
inline std::vector<Real100> kl_own_gradient(const std::vector<Real100>& own,
                                            const std::vector<Real100>& other) {
  std::vector<Real100> grad(own.size());
  const Real100 kl = definition::kl(own, other);
  for (std::size_t v = 0; v < own.size(); ++v)
    grad[v] = own[v] == 0 ? Real100(0) : Real100(own[v] * (log(own[v] / other[v]) - kl));
  return grad;
}

inline Exact exact(const std::vector<Real100>& x, const std::vector<Real100>& y, double beta) {
  const std::vector<Real100> q = definition::softmax(x), p = definition::softmax(y);
  Exact result{definition::divergence(x, y, beta), {}, {}};
  if (beta == 0) {
    result.student_grad = kl_other_gradient(p, q);
    result.teacher_grad = kl_own_gradient(p, q);
  } else if (beta == 1) {
    result.student_grad = kl_own_gradient(q, p);
    result.teacher_grad = kl_other_gradient(q, p);
  } else {
    result.student_grad = gradient(q, p, 1 - Real100(beta));
    result.teacher_grad = gradient(p, q, Real100(beta));
  }
  return result;
}
inline Exact exact(const Row& row) {
  return exact(definition::widen(row.x), definition::widen(row.y), row.beta);
}

inline double distance(const Real100& truth, const Real100& value) {
  return pivot(Real100(abs(truth - value)));
}

}  // namespace fljsd::adversarial
