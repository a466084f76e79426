// SPDX-License-Identifier: Apache-2.0
// Pairs of rows of logits for the tests of the one-pass statistics, and their true values.
#pragma once

#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "reference/chernoff/state.h"
#include "reference/chernoff/worst_case.h"
#include "reference/divergence.h"
#include "verify/cases/random.h"

namespace fljsd::chernoff_tests {

constexpr double infinity = std::numeric_limits<double>::infinity();

inline const double betas[] = {1e-3, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999};

struct RowPair {
  std::string family;
  std::vector<float> x, y;  // student, teacher

  std::vector<double> x64() const { return {x.begin(), x.end()}; }
  std::vector<double> y64() const { return {y.begin(), y.end()}; }
};

template <class X, class Y>
RowPair make_pair(std::string family, Index vocab, const X& x, const Y& y) {
  RowPair row{std::move(family), {}, {}};
  for (Index v = 0; v < vocab; ++v) {
    row.x.push_back(static_cast<float>(x(v)));
    row.y.push_back(static_cast<float>(y(v)));
  }
  return row;
}

// Every kind of row that the one-pass statistics may meet, `vocab` entries each (at least 8).
inline std::vector<RowPair> all_families(Index vocab, std::uint64_t seed) {
  const Random a(seed, 1), b(seed, 2), c(seed, 3);
  const auto last = vocab - 1;
  std::vector<RowPair> rows;
  const auto add = [&](std::string family, const auto& x, const auto& y) {
    rows.push_back(make_pair(std::move(family), vocab, x, y));
  };
  // As the published uniform inputs have it: near 1024, a spread of 10.7, the two models unrelated.
  add(
      "saturated", [&](Index v) { return 1024 + 10.7 * a.deviate(v); },
      [&](Index v) { return 1024 + 10.7 * b.deviate(v); });
  add(
      "kaiming-like", [&](Index v) { return 0.6 * a.deviate(v); },
      [&](Index v) { return 0.6 * b.deviate(v); });
  for (const double gap : {1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6}) {
    add(
        "gap " + std::to_string(gap), [&](Index v) { return 2 * a.deviate(v); },
        [&](Index v) { return static_cast<float>(2 * a.deviate(v)) + gap * b.deviate(v); });
  }
  for (const double peak : {10.0, 40.0, 120.0, 200.0}) {
    const std::string height = std::to_string(static_cast<int>(peak));
    add(
        "same peak of " + height, [&](Index v) { return a.deviate(v) + (v == last ? peak : 0); },
        [&](Index v) { return b.deviate(v) + (v == last ? peak : 0); });
    add(
        "other peak of " + height, [&](Index v) { return a.deviate(v) + (v == 3 ? peak : 0); },
        [&](Index v) { return b.deviate(v) + (v == last ? peak : 0); });
  }
  add(
      "disjoint", [&](Index v) { return v % 2 ? a.deviate(v) : -infinity; },
      [&](Index v) { return v % 2 ? -infinity : b.deviate(v); });
  add(
      "nearly disjoint", [&](Index v) { return v % 2 ? a.deviate(v) : -50 + a.deviate(v); },
      [&](Index v) { return v % 2 ? -50 + b.deviate(v) : b.deviate(v); });
  add(
      "offsets", [&](Index v) { return 1e4 + a.deviate(v); }, [&](Index v) { return -300 + b.deviate(v); });
  add(
      "opposite offsets", [&](Index v) { return -1e4 + 3 * a.deviate(v); },
      [&](Index v) { return 1e4 + 3 * b.deviate(v); });
  add(
      "excluded tokens", [&](Index v) { return c.byte(v) < 64 ? -infinity : a.deviate(v); },
      [&](Index v) { return c.byte(v) > 32 && c.byte(v) < 96 ? -infinity : b.deviate(v); });
  add(
      "late start", [&](Index v) { return v < last / 2 ? -infinity : a.deviate(v); },
      [&](Index v) { return v < last - 2 ? -infinity : b.deviate(v); });
  add(
      "equal", [&](Index v) { return 3 * a.deviate(v); }, [&](Index v) { return 3 * a.deviate(v); });
  add(
      "constant", [&](Index) { return 7; }, [&](Index) { return -2; });
  add(
      "extreme gaps", [&](Index v) { return v % 3 ? -1e4 * a.uniform(v) : 0; },
      [&](Index v) { return v % 5 ? -1e4 * b.uniform(v) : 0; });
  add(
      "two levels", [&](Index v) { return v < vocab / 2 ? 0 : -1; },
      [&](Index v) { return v < vocab / 2 ? -1 : 0; });
  // The maximum rises in every tile, of both rows or of one against the other.
  const auto slope = [&](Index v) { return 20 * static_cast<double>(v) / static_cast<double>(vocab); };
  add("rising", slope, [&](Index v) { return slope(v) + b.deviate(v); });
  add("crossing", slope, [&](Index v) { return -slope(v); });
  // The first entries lie far below the rest.
  add(
      "low start", [&](Index v) { return v < 5 ? -200 : a.deviate(v); },
      [&](Index v) { return v < 5 ? -150 : b.deviate(v); });
  return rows;
}

// The values that the specification gives, in arithmetic so wide that its rounding does not count.
struct Truth {
  double divergence, student_kl, teacher_kl;
};
template <class Real = Real100>
Truth truth(const std::vector<double>& x, const std::vector<double>& y, double beta) {
  std::vector<Real> larger(x.begin(), x.end()), d(y.begin(), y.end());
  std::vector<Real> swapped_larger(y.begin(), y.end()), swapped_d(x.begin(), x.end());
  normalise<Real>(larger, d);
  normalise<Real>(swapped_larger, swapped_d);
  const Real b = beta, rest = 1 - Real(beta);
  return {pivot(divergence<Real>(larger, d, b)), pivot(student_kl<Real>(larger, d, b)),
          pivot(student_kl<Real>(swapped_larger, swapped_d, rest))};
}

// The row of worst_case.h as logits: p_v = M_v·sigmoid(s_v)/beta, q_v = M_v·sigmoid(−s_v)/(1−beta).
struct TwoTokenLogits {
  std::vector<double> x, y;
};
inline TwoTokenLogits logits_of(const TwoTokenRow& row) {
  TwoTokenLogits logits;
  for (int v = 0; v < 2; ++v) {
    // ln sigmoid(s) = −ln(1 + e^{−s}), without overflow; the factors beta and 1−beta are common to the row
    const auto log_sigmoid = [](double s) {
      return s < 0 ? s - std::log1p(std::exp(s)) : -std::log1p(std::exp(-s));
    };
    logits.x.push_back(std::log(row.mixture[v]) + log_sigmoid(-row.s[v]));
    logits.y.push_back(std::log(row.mixture[v]) + log_sigmoid(row.s[v]));
  }
  return logits;
}

// A row swept entry by entry into one state.
template <class Real>
ChernoffState<Real> swept(std::span<const double> x, std::span<const double> y, int last_frequency,
                          double period, PhaseMethod method = PhaseMethod::sincos,
                          MergeSum merge = MergeSum::compensated) {
  ChernoffState<Real> state(last_frequency, period, method, merge);
  for (std::size_t v = 0; v < x.size(); ++v) state.add(static_cast<Real>(x[v]), static_cast<Real>(y[v]));
  return state;
}

}  // namespace fljsd::chernoff_tests
