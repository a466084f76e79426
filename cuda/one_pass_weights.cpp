// SPDX-License-Identifier: Apache-2.0
#include "cuda/one_pass_weights.h"

#include <cmath>
#include <complex>
#include <map>
#include <mutex>
#include <numbers>
#include <stdexcept>
#include <utility>
#include <vector>

#include <Eigen/Dense>

#include "reference/chernoff/integrand.h"
#include "reference/chernoff/minimax_fit.h"
#include "reference/chernoff/quadrature.h"

namespace fljsd::cuda {
namespace {

// The period, in nats: for K = 12 the best for D at beta = 1/2; for K = 22 longer than that, so that entries
// of which one model is sure (|s| up to 24) do not meet the rule's next period.
double period(Basis basis) {
  return basis == Basis::twelve ? 32 : 48;
}

// The minimax rule for D; where beta is so extreme that it cannot be fitted, the trapezoid rule made exact at
// p = q.
std::vector<std::complex<double>> divergence_rule(double beta, int last, double period) {
  try {
    return fit_minimax(Kernel::divergence, exact_at(beta, period), last, period);
  } catch (const std::runtime_error&) {
    return make_quadrature(WeightKind::exact_at_equality, beta, last, period).weights(Kernel::divergence);
  }
}

// Weights z (1, cos, sin, cos, sin, ...) of the rule for U. Least squares relative to the tolerance,
// reweighted (Lawson's method) until the largest error is near its least value; the equality is an equation
// of overwhelming weight.
Eigen::VectorXd fit_kappa(double beta, int last, double step) {
  constexpr int points = 400, rounds = 16;
  constexpr double range = 60, equality = 1e8;
  const auto row = [&](double s) {
    Eigen::VectorXd r(2 * last + 1);
    r[0] = 1;
    for (int k = 1; k <= last; ++k) {
      r[2 * k - 1] = std::cos(k * step * s);
      r[2 * k] = std::sin(k * step * s);
    }
    return r;
  };
  Eigen::MatrixXd basis(points, 2 * last + 1);
  Eigen::VectorXd target(points);
  for (int i = 0; i < points; ++i) {
    const double s = -range + 2 * range * i / (points - 1), u = student_kernel(s);
    const double absolute = 1e-6 * 2 * std::cosh(s / 2),
                 relative = 1e-3 * (u + 1e-6 * std::exp(std::abs(s) / 2));
    const double inverse_tolerance = 1 / absolute + 1 / relative;
    basis.row(i) = row(s).transpose() * inverse_tolerance;
    target[i] = u * inverse_tolerance;
  }
  const double exact = exact_at(beta, 2 * std::numbers::pi / step);
  Eigen::MatrixXd system(points + 1, 2 * last + 1);
  Eigen::VectorXd right(points + 1), share = Eigen::VectorXd::Ones(points), best;
  system.row(points) = row(exact).transpose() * equality;
  right[points] = student_kernel(exact) * equality;
  double least = INFINITY;
  for (int round = 0; round < rounds; ++round) {
    const Eigen::VectorXd root = share.cwiseSqrt();
    system.topRows(points) = root.asDiagonal() * basis;
    right.head(points) = root.cwiseProduct(target);
    const Eigen::VectorXd z = system.householderQr().solve(right);
    const Eigen::VectorXd error = (basis * z - target).cwiseAbs();
    const double largest = error.maxCoeff();
    if (largest < least) least = largest, best = z;
    share = share.cwiseProduct((error.array() + 1e-3 * largest).matrix());
    share *= points / share.sum();
  }
  // The equation holds to about 1e-9; this makes it hold to rounding, at a change far below the tolerance.
  return best * (student_kernel(exact) / row(exact).dot(best));
}

OnePassWeights fit(double beta, Basis basis) {
  constexpr double nats = 2 * std::numbers::ln2;  // of a half log2 unit
  const int last = last_frequency(basis);
  OnePassWeights weights;
  weights.beta = beta;
  // Kernels know the step as a float: the rule is made for that float's period, so that it is exact where
  // they evaluate it.
  weights.phase_step = static_cast<float>(2 * std::numbers::pi / period(basis) * nats);
  const double step = static_cast<double>(weights.phase_step) / nats, length = 2 * std::numbers::pi / step;
  const std::vector<std::complex<double>> rule = divergence_rule(beta, last, length);
  for (int k = 0; k <= last; ++k) weights.divergence[k] = rule[static_cast<std::size_t>(k)].real();
  if (basis == Basis::twelve) return weights;
  const Eigen::VectorXd z = fit_kappa(beta, last, step);
  for (int k = 0; k <= last; ++k) {  // Re[(a − ib)·e^{iws}] = a·cos ws + b·sin ws
    weights.student_real[k] = z[k == 0 ? 0 : 2 * k - 1];
    weights.student_imaginary[k] = k == 0 ? 0 : -z[2 * k];
  }
  return weights;
}

}  // namespace

// A fit takes up to ten milliseconds, and plans of many shapes share a beta: results are kept.
OnePassWeights make_one_pass_weights(double beta, Basis basis) {
  static std::mutex mutex;
  static std::map<std::pair<double, Basis>, OnePassWeights> known;
  constexpr std::size_t most = 256;
  const std::pair key(beta, basis);
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(key); found != known.end()) return found->second;
  }
  const OnePassWeights weights = fit(beta, basis);
  const std::lock_guard lock(mutex);
  if (known.size() >= most) known.clear();
  return known.emplace(key, weights).first->second;
}

}  // namespace fljsd::cuda
