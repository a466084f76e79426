// SPDX-License-Identifier: Apache-2.0
// Weights whose largest error over all rows is least, among those that are exact at p = q.
#pragma once

#include <complex>
#include <vector>

#include "reference/chernoff/quadrature.h"

namespace fljsd {

// Weights of frequencies 0..last_frequency (1 to 24) for logit(beta) = c. Minimises WorstCase::bound up to a
// few per cent; a linear program, solved in double and deterministic. Throws std::runtime_error when it does
// not converge.
std::vector<std::complex<double>> fit_minimax(Kernel kernel, double c, int last_frequency, double period);

}  // namespace fljsd
