// SPDX-License-Identifier: Apache-2.0
// One token, vocabulary of two, hidden size one: student logits (0, 0), teacher logits (0, log 3), so q =
// (1/2, 1/2) and p = (1/4, 3/4), and with beta = 1/2 the divergence is h(3/8) − (h(1/2) + h(1/4))/2, h the
// binary entropy.
#include <cmath>
#include <cstdio>

#include "reference/linear_jsd.h"

int main() {
  const double one = 1, zeros[2] = {0, 0}, teacher[2] = {0, std::log(3.0)};
  fljsd::Problem problem;
  problem.student_input = problem.teacher_input = {fljsd::DType::f64, &one, 1, 1, 1};
  problem.student_weight = {fljsd::DType::f64, zeros, 2, 1, 1};
  problem.teacher_weight = {fljsd::DType::f64, teacher, 2, 1, 1};
  // The gradients are matrices that the library allocates and this program frees: both must agree on how,
  // although they may be compiled for different processors.
  const fljsd::Result result = fljsd::linear_jsd<double>(problem, {}, fljsd::Wanted::all());
  const double loss = result.loss.value();

  const auto h = [](double x) { return -x * std::log(x) - (1 - x) * std::log1p(-x); };
  const double expected = h(0.375) - (h(0.5) + h(0.25)) / 2;
  std::printf("%.17g, expected %.17g\n", loss, expected);
  // A few roundings of numbers below 1: 16 u = 2^-49.
  const bool gradients = result.student_input_grad.size() == 1 && result.student_weight_grad.size() == 2;
  return gradients && std::abs(loss - expected) <= std::ldexp(1.0, -49) ? 0 : 1;
}
