// SPDX-License-Identifier: Apache-2.0
#include "reference/error_bound/roundoff.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fljsd {
namespace {
constexpr double infinity = std::numeric_limits<double>::infinity();
}

double gamma(double n, double u) {
  const double product = n * u;
  return product < 1 ? product / (1 - product) : infinity;
}

double statistical_gamma(double n, double u, double lambda) {
  return std::expm1((lambda * std::sqrt(n) * u + n * u * u) / (1 - u));
}

double failure_probability(double lambda, double quantities) {
  return std::min(1.0, 2 * quantities * std::exp(-lambda * lambda / 2));
}

double lambda_for(double probability, double quantities) {
  return std::sqrt(2 * std::max(0.0, std::log(2 * std::max(1.0, quantities) / probability)));
}

double martingale_error(double squares, double additions, double u, double lambda) {
  const double feedback = 2 * lambda * u * std::sqrt(additions);
  return feedback < 1 ? lambda * u * std::sqrt(squares) / (1 - feedback) : infinity;
}

double dot_error(const DotScale& dot, const DotArithmetic& arithmetic) {
  const double n = dot.terms, u = arithmetic.unit;
  // On any path from a term to the result: its product, at most n − 1 additions, and its two operands.
  double worst = gamma(n, u) * dot.absolute;
  if (arithmetic.operands > 0) worst += (1 + gamma(n, u)) * gamma(2, arithmetic.operands) * dot.absolute;
  // A partial sum may be that much larger than Σ|t_i|, and 2^128·(1 − 2^-25) rounds to infinity.
  if (!(dot.absolute + std::min(worst, dot.absolute) < arithmetic.largest)) return infinity;
  // Root mean square of the partial sums of a regular order of summation.
  const double partial_square = dot.partial_square + dot.square;
  const double partial = std::sqrt(partial_square);
  double statistical = infinity;
  if (arithmetic.lambda > 0) {
    const double operand_ratio = arithmetic.operands / u;
    statistical = martingale_error(n * partial_square + (1 + 2 * operand_ratio * operand_ratio) * dot.square,
                                   n, u, arithmetic.lambda);
  }
  double truncated = 0;
  if (arithmetic.block > 0) {
    const double blocks = std::ceil(n / arithmetic.block);
    const double largest_product = std::sqrt(dot.square);
    const double regular = 5 * partial + 4 * largest_product;
    // Without statistics nothing better than Σ|t_i| bounds a partial sum or a product, the larger of them
    // too.
    truncated = blocks * arithmetic.truncation *
                (arithmetic.lambda > 0 ? std::min(regular, 5 * dot.absolute) : 5 * dot.absolute);
  }
  // What n products and n − 1 additions lose to underflow grows by the roundings after them.
  return std::min(worst, statistical) + truncated + 2 * n * arithmetic.smallest * std::exp(n * u);
}

}  // namespace fljsd
