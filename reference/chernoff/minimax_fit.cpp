// SPDX-License-Identifier: Apache-2.0
#include "reference/chernoff/minimax_fit.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "reference/chernoff/integrand.h"
#include "reference/chernoff/linear_program.h"

namespace fljsd {
namespace {

// The fit as a semi-infinite linear program. Unknown: weights of frequencies k >= 1 (the one of k = 0 follows
// from exactness at s = c), one slope for each sign of the error, and the largest error E, which is
// minimised:
//
//   ±g(s) − slope±·(sigmoid(s) − beta) <= E     for all s,     g(s) = mixture_weight(s)·(rule(s) − kernel(s))
//
// By the duality of worst_case.h, the least E is the error of the worst row for these weights. When beta is
// close to 0 or 1 many weights reach it, since most of g is then almost free; so the pointwise error P >=
// ±g(s) takes part with a small share, and what is minimised is E + P/1000. Nearer to 0 or 1 than 1e-4, beta
// stays there in the bound that is minimised (the error is then at most of the size of h(beta), whatever the
// weights), but not in the exactness at c.
class Fit {
 public:
  Fit(Kernel kernel, double c, int last_frequency, double period)
      : even_(kernel == Kernel::divergence),
        c_(c),
        beta_(std::clamp(sigmoid(c), 1e-4, 1 - 1e-4)),
        step_(2 * std::numbers::pi / period),
        last_frequency_(last_frequency),
        weights_(even_ ? last_frequency : 2 * last_frequency),
        at_c_(basis(c)),
        program_(cost(weights_), 100) {
    // Beyond |s| = 60 the weight is below 1e-13; the error there is bounded when the weights are judged. Five
    // points to a period of the highest frequency make a start; the rest is added where it is missed.
    constexpr double range = 60;
    const double spacing = std::min(period / last_frequency, 2.0) / 5;
    const int count = static_cast<int>(range / spacing);
    for (int i = -count; i <= count; ++i) add(make_point(range * i / count));
    for (int i = -16 * count; i <= 16 * count; ++i) fine_.push_back(make_point(range * i / (16 * count)));
  }

  std::vector<std::complex<double>> solve() {
    // Constraints are added where they are violated most until E is right to 0.2 %, as it is after a few
    // rounds. (What the weights are worth is judged by worst_case() in any case.)
    for (int round = 0; round < 20; ++round) {
      z_ = program_.solve(1e-13, 3e-4);
      if (!add_violated()) break;
    }
    return result();
  }

 private:
  // The unknowns: weights, slope for +g, slope for −g, E, P.
  static Eigen::VectorXd cost(int weights) {
    Eigen::VectorXd result = Eigen::VectorXd::Zero(weights + 4);
    result[weights + 2] = 1;
    result[weights + 3] = 1e-3;
    return result;
  }

  double kernel(double s) const { return even_ ? divergence_kernel(s) : student_kernel(s); }
  double error_limit() const { return z_[weights_ + 2]; }

  Eigen::VectorXd basis(double s) const {
    Eigen::VectorXd values(weights_);
    for (int k = 1; k <= last_frequency_; ++k) {
      values[k - 1] = std::cos(k * step_ * s);
      if (!even_) values[last_frequency_ + k - 1] = std::sin(k * step_ * s);
    }
    return values;
  }

  // What a constraint at s is made of: g(s) = row·weights − target, and sigmoid(s) − beta.
  struct Point {
    Eigen::VectorXd row;
    double target, lean;
  };
  Point make_point(double s) const {
    const double weight = mixture_weight(s);
    return {weight * (basis(s) - at_c_), weight * (kernel(s) - kernel(c_)), sigmoid(s) - beta_};
  }

  void add(const Point& p) {
    for (const int sign : {1, -1}) {
      Eigen::VectorXd constraint = Eigen::VectorXd::Zero(weights_ + 4), pointwise = constraint;
      constraint.head(weights_) = pointwise.head(weights_) = sign * p.row;
      constraint[sign > 0 ? weights_ : weights_ + 1] = -p.lean;
      constraint[weights_ + 2] = -1;
      program_.add(constraint, sign * p.target);
      pointwise[weights_ + 3] = -1;
      program_.add(pointwise, sign * p.target);
    }
  }

  // By how much more than E the worse of the two signs errs, minus E.
  double excess(const Point& p) const {
    const double g = p.row.dot(z_.head(weights_)) - p.target;
    return std::max(g - z_[weights_] * p.lean, -g - z_[weights_ + 1] * p.lean) - error_limit();
  }

  bool add_violated() {
    std::vector<double> values;
    for (const Point& p : fine_) values.push_back(excess(p));
    const double allowed = 2e-3 * error_limit() + 2e-13;
    bool added = false;
    for (std::size_t i = 0; i < fine_.size(); ++i) {
      const bool peak =
          (i == 0 || values[i] >= values[i - 1]) && (i + 1 == fine_.size() || values[i] > values[i + 1]);
      if (!peak || values[i] <= allowed) continue;
      add(fine_[i]);
      added = true;
    }
    return added;
  }

  std::vector<std::complex<double>> result() const {
    std::vector<std::complex<double>> weights(static_cast<std::size_t>(last_frequency_) + 1);
    double at_c = 0;
    for (int k = 1; k <= last_frequency_; ++k) {
      // Re[(a − ib)·e^{iws}] = a·cos(ws) + b·sin(ws)
      const double a = z_[k - 1], b = even_ ? 0.0 : z_[last_frequency_ + k - 1];
      weights[static_cast<std::size_t>(k)] = {a, -b};
      at_c += a * std::cos(k * step_ * c_) + b * std::sin(k * step_ * c_);
    }
    weights[0] = kernel(c_) - at_c;
    return weights;
  }

  bool even_;
  double c_, beta_, step_;
  int last_frequency_, weights_;
  Eigen::VectorXd at_c_;  // the basis functions
  LinearProgram program_;
  std::vector<Point> fine_;  // where constraints are looked for
  Eigen::VectorXd z_;
};

}  // namespace

std::vector<std::complex<double>> fit_minimax(Kernel kernel, double c, int last_frequency, double period) {
  if (kernel == Kernel::teacher_kl) {
    // U(−s) at c is U at −c, mirrored.
    auto weights = fit_minimax(Kernel::student_kl, -c, last_frequency, period);
    for (auto& weight : weights) weight = std::conj(weight);
    return weights;
  }
  return Fit(kernel, c, last_frequency, period).solve();
}

}  // namespace fljsd
