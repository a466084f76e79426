// SPDX-License-Identifier: Apache-2.0
#include "reference/chernoff/quadrature.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <sstream>
#include <stdexcept>

#include "reference/chernoff/integrand.h"
#include "reference/chernoff/minimax_fit.h"

namespace fljsd {
namespace {

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  std::ostringstream text;
  text.precision(17);
  (text << ... << parts);
  throw std::invalid_argument(text.str());
}

}  // namespace

const char* name(WeightKind kind) {
  switch (kind) {
    case WeightKind::trapezoid: return "trapezoid";
    case WeightKind::exact_at_equality: return "exact-at-equality";
    case WeightKind::minimax: return "minimax";
  }
  return "?";
}

const char* name(Kernel kernel) {
  switch (kernel) {
    case Kernel::divergence: return "divergence";
    case Kernel::student_kl: return "student-kl";
    case Kernel::teacher_kl: return "teacher-kl";
  }
  return "?";
}

double exact_at(double beta, double period) {
  return std::clamp(logit(beta), -0.45 * period, 0.45 * period);
}

double Quadrature::frequency(int k) const {
  return k * (2 * std::numbers::pi / period);
}

std::vector<std::complex<double>> Quadrature::weights(Kernel kernel) const {
  switch (kernel) {
    case Kernel::student_kl: return student_kl;
    case Kernel::teacher_kl: return teacher_kl;
    case Kernel::divergence: break;
  }
  return {divergence.begin(), divergence.end()};
}

double evaluate_rule(std::span<const std::complex<double>> weights, double period, double s) {
  double sum = 0;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    const double angle = static_cast<double>(k) * (2 * std::numbers::pi / period) * s;
    sum += weights[k].real() * std::cos(angle) - weights[k].imag() * std::sin(angle);
  }
  return sum;
}

Quadrature make_quadrature(WeightKind kind, double beta, int last_frequency, double period) {
  if (!(beta > 0 && beta < 1)) refuse("beta is ", beta, ", but a quadrature needs 0 < beta < 1.");
  const bool fitted = kind == WeightKind::minimax;
  const int most = fitted ? 24 : 1000;
  if (!(last_frequency >= 1 && last_frequency <= most)) {
    refuse("last_frequency is ", last_frequency, ", but it must be in [1, ", most, "] for ", name(kind),
           " weights.");
  }
  const double shortest = fitted ? 16 : 4, longest = fitted ? 64 : 1000;
  if (!(period >= shortest && period <= longest)) {
    refuse("period is ", period, ", but it must be in [", shortest, ", ", longest, "] for ", name(kind),
           " weights.");
  }

  Quadrature result{kind, beta, period, {}, {}, {}};
  const double c = exact_at(beta, period);
  if (kind == WeightKind::minimax) {
    for (const auto& weight : fit_minimax(Kernel::divergence, c, last_frequency, period)) {
      result.divergence.push_back(weight.real());
    }
    result.student_kl = fit_minimax(Kernel::student_kl, c, last_frequency, period);
    result.teacher_kl = fit_minimax(Kernel::teacher_kl, c, last_frequency, period);
    return result;
  }
  for (int k = 0; k <= last_frequency; ++k) {
    const double w = k * (2 * std::numbers::pi / period);
    const double weight =
        (k == 0 ? 0.5 : 1.0) * (2 * std::numbers::pi / period) * transform_density(w, std::numbers::pi);
    result.divergence.push_back(weight);
    result.student_kl.push_back(weight * std::complex(0.5, -w));
    result.teacher_kl.push_back(weight * std::complex(0.5, w));
  }
  if (kind == WeightKind::exact_at_equality) {
    const auto scale = [&](Kernel kernel, double exact, auto& weights) {
      const double factor = exact / evaluate_rule(result.weights(kernel), period, c);
      for (auto& weight : weights) weight *= factor;
    };
    scale(Kernel::divergence, divergence_kernel(c), result.divergence);
    scale(Kernel::student_kl, student_kernel(c), result.student_kl);
    scale(Kernel::teacher_kl, student_kernel(-c), result.teacher_kl);
  }
  return result;
}

}  // namespace fljsd
