// SPDX-License-Identifier: Apache-2.0
// The largest error of a rule over ALL pairs of rows, of any vocabulary. docs/one_pass.md, section 6.
//
// With t = sigmoid(s) and g(s) = mixture_weight(s)·(rule(s) − kernel(s)), the error of a row is the mean Σ_v
// M_v·g(s_v), and the only constraint on (M_v, s_v) is Σ_v M_v·t_v = beta. Its largest value is therefore the
// concave envelope of g, as a function of t, at t = beta. The envelope is reached by two tokens, and it
// equals the least of sup_s [g(s) − slope·(t − beta)] over all slopes, so any slope gives a bound and the
// best one is tight.
#pragma once

#include <complex>
#include <span>

#include "reference/chernoff/quadrature.h"

namespace fljsd {

// Two tokens with log ratios s[0] <= s[1] and shares M of the mixture; ±inf means that one model excludes the
// token.
struct TwoTokenRow {
  double s[2];
  double mixture[2];
};

struct WorstCase {
  // |rule − truth| is at most this for every row: of D, of (1−beta)·KL(q‖M), or of beta·KL(p‖M). A true
  // bound, the rounding of its own evaluation included.
  double bound;
  double attained;  // the error of `row`: for 1e-6 <= beta <= 1 − 1e-6 within 1 % of `bound`, or both below
                    // 1e-12
  TwoTokenRow row;
  double pointwise;  // sup_s |g(s)|, up to rounding: the bound that ignores the constraint on the mean of t
};

WorstCase worst_case(Kernel kernel, const Quadrature& quadrature);

}  // namespace fljsd
