// SPDX-License-Identifier: Apache-2.0
#include "reference/chernoff/worst_case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "reference/chernoff/integrand.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// A function's value and second derivative in s.
struct Jet {
  double value = 0, second = 0;

  Jet& operator+=(const Jet& other) {
    value += other.value;
    second += other.second;
    return *this;
  }
};
Jet operator*(double factor, const Jet& jet) {
  return {factor * jet.value, factor * jet.second};
}

// u(s) = mixture_weight(s)·U(s) = (1−t)·l, where t = sigmoid(s), l = −ln(1−t) = ln(1+e^s). From t' = t(1−t)
// and l' = t: u' = t(1−t)·(1−l), u'' = t(1−t)·[(1−2t)(1−l) − t].
Jet student_jet(double s) {
  const double t = sigmoid(s), rest = sigmoid(-s);
  const double l = s > 0 ? s + std::log1p(std::exp(-s)) : std::log1p(std::exp(s));
  return {rest * l, t * rest * ((rest - t) * (1 - l) - t)};
}

// Going on like that, u'''' = t(1−t)·[P(t)·(1−l) + Q(t)] with P = 1 − 14t + 36t² − 24t³, Q = −7t + 30t² −
// 26t³, and on [0, 1] |P| <= 1, |Q| <= 3. With t(1−t) <= e^{−|s|} and 0 <= l <= |s| + ln 2, for |s| >= near:
double student_fourth_bound(double near) {
  return std::exp(-near) * (near + 4.7);
}

// sigmoid'' = t(1−t)(1−2t); |sigmoid''''| = t(1−t)·|P(t)| <= e^{−|s|}.
Jet sigmoid_jet(double s) {
  const double t = sigmoid(s), rest = sigmoid(-s);
  return {t, t * rest * (rest - t)};
}

// G(s) = sign·g(s) − slope·(sigmoid(s) − beta), whose supremum bounds the error of every row from one side.
class LeaningError {
 public:
  LeaningError(Kernel kernel, std::vector<std::complex<double>> weights, double step, double c)
      : both_(kernel == Kernel::divergence), weights_(std::move(weights)), step_(step), beta_(sigmoid(c)) {
    for (std::size_t k = 0; k < weights_.size(); ++k) {
      const double size = std::abs(weights_[k]), w = static_cast<double>(k) * step_;
      // m = sech(s/2)/2 has |m'| <= m/2, |m''| <= m/4, |m'''| <= 5m/8, |m''''| <= 5m/16; Leibniz for
      // m·e^{iws}:
      rule_fourth_ += size * (std::pow(w, 4) + 2 * std::pow(w, 3) + 1.5 * w * w + 2.5 * w + 0.3125);
      total_ += size;
      // cos and sin of an argument with relative error 2u, products and the sum
      rounding_ += 0x1p-53 * size * (2 * w * range + static_cast<double>(weights_.size()) + 8);
    }
    rounding_ += 0x1p-48;  // the kernels, all of size at most 1
  }

  // Beyond it only the two tails are left.
  static constexpr double range = 90;

  double beta() const { return beta_; }

  // Largest rounding error of the value of a Jet below, slope excluded.
  double rounding() const { return rounding_; }

  // g and its second derivative.
  Jet error(double s) const {
    double value = 0, first = 0, second = 0;
    for (std::size_t k = 0; k < weights_.size(); ++k) {
      const double w = static_cast<double>(k) * step_;
      const double cosine = std::cos(w * s), sine = std::sin(w * s);
      const double term = weights_[k].real() * cosine - weights_[k].imag() * sine;
      value += term;
      first -= w * (weights_[k].real() * sine + weights_[k].imag() * cosine);
      second -= w * w * term;
    }
    const double m = mixture_weight(s), tanh = std::tanh(s / 2);
    Jet jet{m * value, m * (second - tanh * first + (0.25 - 2 * m * m) * value)};
    jet += -1 * student_jet(s);
    if (both_) jet += -1 * student_jet(-s);
    return jet;
  }

  Jet leaning(double sign, double slope, double s) const {
    Jet jet = sign * error(s);
    jet += -slope * sigmoid_jet(s);
    jet.value += slope * beta_;
    return jet;
  }

  // Bound of |G''''| where |s| >= near.
  double fourth(double slope, double near) const {
    return rule_fourth_ * std::exp(-near / 2) + (both_ ? 2 : 1) * student_fourth_bound(near) +
           std::abs(slope) * std::exp(-near);
  }

  // Bound of G where s >= range, or s <= −range: m <= e^{−|s|/2}, and the kernels are at most 2(|s| +
  // 1)·e^{−|s|}.
  double tail(double slope) const {
    return std::max(slope * beta_, -slope * (1 - beta_)) + total_ * std::exp(-range / 2) +
           2 * (range + 1) * std::exp(-range) + std::abs(slope) * std::exp(-range);
  }

 private:
  bool both_;
  std::vector<std::complex<double>> weights_;
  double step_, beta_;
  double rule_fourth_ = 0, total_ = 0, rounding_ = 0;
};

struct Supremum {
  double bound;  // of G, at most 0.1 % above its supremum where rounding allows
  double s;      // a point where G comes that close
};

// An upper bound of G.
//
// On an interval of width d a function is at most the larger of its end values + d²/8·max|G''|, and likewise
// |G''| is at most the larger of its end values + d²/8·max|G''''|. An interval whose bound is not good enough
// is halved.
Supremum supremum(const LeaningError& error, double sign, double slope) {
  struct Piece {
    double a, b;
    Jet at_a, at_b;
  };
  const auto at = [&](double s) { return error.leaning(sign, slope, s); };
  std::vector<Piece> pieces;
  constexpr double range = LeaningError::range;
  constexpr int count = 720;
  double best = error.tail(slope), bound = best, best_s = -range;
  const auto visit = [&](double s, const Jet& jet) {
    if (jet.value > best) {
      best = jet.value;
      best_s = s;
    }
  };
  Jet left = at(-range);
  for (int i = 0; i < count; ++i) {
    const double a = -range + 2 * range * i / count, b = -range + 2 * range * (i + 1) / count;
    const Jet right = at(b);
    visit(b, right);
    pieces.push_back({a, b, left, right});
    left = right;
  }
  while (!pieces.empty()) {
    const Piece piece = pieces.back();
    pieces.pop_back();
    const double eighth = (piece.b - piece.a) * (piece.b - piece.a) / 8;
    const double near = piece.a < 0 && piece.b > 0 ? 0 : std::min(std::abs(piece.a), std::abs(piece.b));
    const double second = std::max(std::abs(piece.at_a.second), std::abs(piece.at_b.second)) +
                          eighth * error.fourth(slope, near);
    const double upper = std::max(piece.at_a.value, piece.at_b.value) + eighth * second;
    if (upper <= best + 1e-3 * std::abs(best) + error.rounding()) {
      bound = std::max(bound, upper);
      continue;
    }
    const double middle = (piece.a + piece.b) / 2;
    const Jet jet = at(middle);
    visit(middle, jet);
    pieces.push_back({piece.a, middle, piece.at_a, jet});
    pieces.push_back({middle, piece.b, jet, piece.at_b});
  }
  return {bound + error.rounding() + 0x1p-50 * std::abs(slope), best_s};
}

struct Point {
  double s, t, value;
};

// The chord of the concave envelope above beta, over a finite set of points.
struct Chord {
  Point low{-infinity, 0, 0}, high{infinity, 1, 0};

  double slope() const { return (high.value - low.value) / (high.t - low.t); }
  double at(double beta) const {
    return (low.value * (high.t - beta) + high.value * (beta - low.t)) / (high.t - low.t);
  }
};

// Found from below: the chord starts from the two tokens that one model excludes, and an end is replaced by
// the point that rises most above the chord's line, until none does. Every replacement raises the chord at
// beta, so this ends.
Chord envelope(const std::vector<Point>& points, double sign, double beta) {
  Chord chord;
  for (std::size_t round = 0; round < points.size(); ++round) {
    const double slope = chord.slope(), start = chord.at(beta);
    double height = start + 1e-12 * std::abs(start);
    const Point* top = nullptr;
    for (const Point& point : points) {
      const double value = sign * point.value - slope * (point.t - beta);
      if (point.t != beta && value > height) {
        height = value;
        top = &point;
      }
    }
    if (top == nullptr) break;
    (top->t < beta ? chord.low : chord.high) = {top->s, top->t, sign * top->value};
  }
  return chord;
}

// One side of the error, sign·g. The envelope over the points gives a slope and a row, the slope gives a
// bound; where the bound was found becomes a point, until bound and row agree.
WorstCase one_side(const LeaningError& error, double sign, std::vector<Point> points) {
  const double beta = error.beta();
  WorstCase worst{supremum(error, sign, 0).bound, -infinity, {}, 0};
  for (const Point& point : points) worst.pointwise = std::max(worst.pointwise, sign * point.value);
  for (int round = 0; round < 20; ++round) {
    const Chord chord = envelope(points, sign, beta);
    const Supremum top = supremum(error, sign, chord.slope());
    worst.bound = std::min(worst.bound, top.bound);
    if (chord.at(beta) > worst.attained) {
      const double share = (beta - chord.low.t) / (chord.high.t - chord.low.t);
      worst.attained = chord.at(beta);
      worst.row = {{chord.low.s, chord.high.s}, {1 - share, share}};
    }
    if (worst.bound <= 1.003 * worst.attained + 4 * error.rounding()) break;
    points.push_back({top.s, sigmoid(top.s), error.error(top.s).value});
  }
  return worst;
}

}  // namespace

WorstCase worst_case(Kernel kernel, const Quadrature& quadrature) {
  auto weights = quadrature.weights(kernel);
  double c = logit(quadrature.beta);
  if (kernel == Kernel::teacher_kl) {
    // The roles of p and q exchanged: s -> −s, beta -> 1 − beta turn it into the student's.
    for (auto& weight : weights) weight = std::conj(weight);
    c = -c;
  }
  const double step = 2 * std::numbers::pi / quadrature.period;
  const LeaningError error(kernel, std::move(weights), step, c);

  constexpr double range = LeaningError::range;
  const double spacing = std::min(quadrature.period / std::max(quadrature.last_frequency(), 8), 2.0) / 64;
  std::vector<Point> grid;
  const int count = static_cast<int>(range / spacing);
  for (int i = -count; i <= count; ++i) {
    const double s = range * i / count;
    grid.push_back({s, sigmoid(s), error.error(s).value});
  }
  WorstCase above = one_side(error, 1, grid);
  WorstCase below = one_side(error, -1, grid);
  const double pointwise = std::max(above.pointwise, below.pointwise);
  const double bound = std::max(above.bound, below.bound);
  WorstCase worst = above.attained >= below.attained ? above : below;
  worst.pointwise = pointwise;
  worst.bound = bound;
  if (kernel == Kernel::teacher_kl) {
    std::swap(worst.row.s[0], worst.row.s[1]);
    std::swap(worst.row.mixture[0], worst.row.mixture[1]);
    for (double& s : worst.row.s) s = -s;
  }
  return worst;
}

}  // namespace fljsd
