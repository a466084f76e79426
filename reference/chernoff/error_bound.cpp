// SPDX-License-Identifier: Apache-2.0
// The error of the first sweep, bounded. docs/one_pass.md, section 8, derives every line; the letters are the
// same.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "reference/chernoff.h"
#include "reference/chernoff/integrand.h"
#include "reference/chernoff/product_basis.h"
#include "reference/chernoff/worst_case.h"

namespace fljsd {
namespace {

constexpr double u = 0x1p-24;

class SweepErrors {
 public:
  SweepErrors(const OnePassConfig& config, Index vocab, const ElementaryErrors& elementary)
      : config_(config), elementary_(elementary) {
    const double n = static_cast<double>(std::max<Index>(vocab, 1));
    const double tile = static_cast<double>(std::min(config.tile, std::max<Index>(vocab, 1)));
    const double tiles = std::ceil(n / tile);
    spread_ = std::max(2.0, std::log(n)) + config.headroom;
    adding_ = (std::ceil(tile / config.lanes) + std::log2(config.lanes)) * u;
    // Plain: one addition and one scaling (factor and product rounded) a tile. Two-float: what the low parts
    // lose.
    adding_ += config.merge == MergeSum::plain ? 3 * tiles * u : tiles * tiles * u * u + tiles * 0x1p-46;
  }

  // Λ: the mean, and root mean square, distance of a token from its row's reference.
  double spread() const { return spread_; }
  // A: relative error of adding up terms, of Σ|terms|.
  double adding() const { return adding_; }

  // Relative error of Sx or Sy.
  double sum() const { return 3 * u * spread_ + 2 * elementary_.exp2 + u + adding_; }

  // Error of Φ_k relative to sqrt(Sx·Sy).
  double chernoff(int k) const {
    const double h = 2 * std::numbers::pi / config_.period;
    const double modulus = 3 * u * spread_ + 2 * elementary_.exp2 + u;
    const double angle = k * (8 * h * u * spread_ + 2 * std::numbers::pi * u);
    return modulus + angle + phase_and_adding(k);
  }

 private:
  double phase_and_adding(int k) const {
    if (k == 0) return adding_;
    const double component = elementary_.sine_cosine;
    const double complex = std::numbers::sqrt2 * component;
    // The angle m·θ of an evaluated frequency: the product m·turns, |turns| <= 1/2, is rounded.
    const auto angle = [](double m) { return std::numbers::pi * m * u; };
    switch (config_.phases) {
      case PhaseMethod::sincos: return angle(k) + complex + std::numbers::sqrt2 * adding_;
      case PhaseMethod::recurrence:
      case PhaseMethod::stride4: {
        const int stride = config_.phases == PhaseMethod::stride4 ? 4 : 1;
        const double start = angle(stride) + complex + std::numbers::sqrt2 * u;
        const double steps = k / stride;
        if (k <= stride) return start + std::numbers::sqrt2 * adding_;
        const double step = 2 * (angle(stride) + component) + std::numbers::sqrt2 * u;
        return (2 * steps + 1) * start + steps * (steps + 1) / 2 * step + std::numbers::sqrt2 * adding_;
      }
      case PhaseMethod::product_basis: {
        // Errors of F(5θ) and of g·F(θ), F = 1, cos, sin, cos², cos·sin.
        const double far = angle(5) + component, near = component + u;
        const double outer[] = {0, far, far, 2 * far + u, 2 * far + u};
        const double inner[] = {0, near, near, 2 * near, 2 * near};
        const ProductCoefficients coefficients = product_coefficients(k);
        double real = 0, imag = 0;
        for (std::size_t i = 0; i < product_moments; ++i) {
          const double moment = outer[i / 5] + inner[i % 5] + adding_;
          real += std::abs(coefficients.real[i]) * moment;
          imag += std::abs(coefficients.imag[i]) * moment;
        }
        return std::hypot(real, imag);
      }
    }
    return std::numeric_limits<double>::quiet_NaN();
  }

  OnePassConfig config_;
  ElementaryErrors elementary_;
  double spread_, adding_;
};

// Products of errors, and float64 in finalise().
constexpr double second_order = 1.01;

}  // namespace

OnePassErrorBound one_pass_error_bound(const OnePassPlan& plan, Index vocab, double largest_gap,
                                       const ElementaryErrors& elementary) {
  const OnePassConfig& config = plan.config();
  const SweepErrors errors(config, vocab, elementary);
  const double beta = config.beta;
  if (beta == 0 || beta == 1) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double spread = errors.spread(), reach = spread + largest_gap;
    // Errors of T/Sa from its terms, from adding them, and from Sa; then of the two logarithms.
    const double sum = 3 * u * spread + elementary.exp2 + errors.adding();
    const double bound =
        second_order * (reach * (3 * u * spread + elementary.exp2 + 3 * u + errors.adding() + sum) + 2 * sum);
    return {bound, beta == 1 ? bound : nan, beta == 0 ? bound : nan, sum, 0};
  }

  const Quadrature& quadrature = plan.quadrature();
  const auto bound = [&](Kernel kernel) {
    double total = 0;
    const auto weights = quadrature.weights(kernel);
    for (std::size_t k = 0; k < weights.size(); ++k) {
      const double w = quadrature.frequency(static_cast<int>(k));
      total += std::abs(weights[k]) * (errors.chernoff(static_cast<int>(k)) + errors.sum() * (1 + 2 * w));
    }
    return second_order * std::sqrt(beta * (1 - beta)) * total;
  };
  // finalise() keeps each value in the interval where the true one lies, so the interval's length is a bound
  // too.
  const double rule = worst_case(Kernel::divergence, quadrature).bound;
  const double student = worst_case(Kernel::student_kl, quadrature).bound + bound(Kernel::student_kl);
  const double teacher = worst_case(Kernel::teacher_kl, quadrature).bound + bound(Kernel::teacher_kl);
  return {std::min(rule + bound(Kernel::divergence), binary_entropy(beta)),
          std::min(student, -(1 - beta) * std::log1p(-beta)), std::min(teacher, -beta * std::log(beta)),
          errors.sum(), rule};
}

}  // namespace fljsd
