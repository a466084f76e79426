// SPDX-License-Identifier: Apache-2.0
// Rounding errors of sums and dot products: the worst case, and what a stated probability allows.
//
// u is a unit roundoff throughout: fl(a op b) = (a op b)(1 + delta), |delta| <= u.
//
// Worst case (Higham, Accuracy and Stability of Numerical Algorithms, 3.1): a product of n factors 1 + delta
// lies within gamma(n, u) of 1, so a dot product of n terms in any order of summation is off by at most
// gamma(n, u) · Σ|a_i·w_i|.
//
// Statistical: if the deltas are random variables with E[delta_k | earlier ones] = 0, which Connolly, Higham
// and Mary (SIAM J. Sci. Comput. 43, 2021) call mean independence, Azuma's inequality gives the same with
// about lambda·sqrt(n)·u in place of n·u, except with probability 2·exp(−lambda²/2). Round to nearest is not
// random; the assumption is that it behaves no worse. docs/error_analysis.md states and proves what is used.
#pragma once

namespace fljsd {

// n·u / (1 − n·u), infinite from n·u = 1 on.
double gamma(double n, double u);

// exp((lambda·sqrt(n)·u + n·u²) / (1 − u)) − 1: the factor that replaces gamma(n, u) in a backward error
// bound, except with probability failure_probability(lambda, 1) for each product of n factors (Connolly,
// Higham and Mary 2021, Theorem 4.2).
double statistical_gamma(double n, double u, double lambda);

// The probability that at least one of `quantities` sums is off by more than its statistical bound:
// min(1, quantities · 2·exp(−lambda²/2)), by the union bound.
double failure_probability(double lambda, double quantities);

// The smallest lambda for which failure_probability(lambda, quantities) <= probability.
double lambda_for(double probability, double quantities);

// A bound on |Σ delta_k·t_k| for `additions` roundings delta_k of intermediate results t_k whose exact values
// have sum of squares `squares`: lambda·u·sqrt(squares) / (1 − 2·lambda·u·sqrt(additions)), where the
// denominator is for the errors that the t_k carry themselves. Holds for every fixed tree of additions except
// with probability 2·exp(−lambda²/2) · (1 + additions·exp(−3·lambda²/2)).
double martingale_error(double squares, double additions, double u, double lambda);

// What is known about one dot product of n terms t_i = a_i·w_i, besides its value.
struct DotScale {
  double terms = 0;     // n, the length of the vectors
  double total = 0;     // Σ t_i
  double absolute = 0;  // at least Σ|t_i|: ‖a‖₂·‖w‖₂ by Cauchy–Schwarz, or the sum itself
  double square = 0;  // at least Σ t_i²: ‖a²‖₂·‖w²‖₂ by Cauchy–Schwarz on the squares, or the sum itself
  // Mean over k of the square of the partial sum t_1 + ... + t_k, sampled at block ends in natural order, or
  // of t_k + ... + t_n if that is larger.
  double partial_square = 0;
};

// How dot products are accumulated.
struct DotArithmetic {
  double unit = 0;      // unit roundoff of one addition and of one product
  double operands = 0;  // relative error of rounding each operand first; 0 if the operands are exact
  double smallest = 0;  // absolute error of one underflowing operation
  double largest = 0;   // results beyond it overflow
  // 0: only the worst case holds. Else the bound is the smaller of the worst case and the statistical one
  // for a regular order of summation (one that does not depend on the data), with this lambda.
  double lambda = 0;
  // Units that add a block of products to the accumulator at once, aligned to the largest and truncated: each
  // block costs at most truncation · (4·max(|accumulator| before, |largest product|) + |accumulator| after).
  double block = 0;
  double truncation = 0;
};

// A bound on |computed − exact| of one dot product, before anything is added to it. Infinite if a partial sum
// may overflow.
double dot_error(const DotScale& dot, const DotArithmetic& arithmetic);

}  // namespace fljsd
