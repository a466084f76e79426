// SPDX-License-Identifier: Apache-2.0
// Weights of the one-pass statistics, made for a plan's beta in double.
#pragma once

#include "cuda/one_pass_basis.h"

namespace fljsd::cuda {

// The rule for D is the minimax one of the reference (reference/chernoff/quadrature.h): its error is at
// most 2.2e-6 for K = 12 and 2e-7 for K = 22, for any rows and any beta.
//
// kappa needs more, for K = 22: it multiplies the gradient, and where q and p hardly overlap it is itself as
// small as 1e-6. There the minimax rule is useless although its error is small: a frequency sum repeats
// itself, and an entry with |s| near half a period (18 nats), where U is 2e-3, gets a weight of about 1 times
// an allowed error of e^{|s|/2}·5e-7. So kappa's rule is fitted to a tolerance that is small in both senses,
//
//   1/tolerance(s) = 1/(1e-6·2cosh(s/2)) + 1/(1e-3·(U(s) + 1e-6·e^{|s|/2})),
//
// with equality at s = logit(beta). The fit reaches twice that: (1−beta)·kappa is good to 2e-6, and to 2e-3
// of itself where it exceeds 1e-6. With the minimax rule kappa of saturated rows is off by 1e-2 of itself
// (data/measured/one_pass_gradients.csv), and their gradients with it.
//
// With K = 12 (losses only) there are no weights for kappa.
OnePassWeights make_one_pass_weights(double beta, Basis basis);

}  // namespace fljsd::cuda
