// SPDX-License-Identifier: Apache-2.0
// The certified tier: intervals that contain the true value, narrowed until they round to one double.
//
// Exact dot products, then the spec in interval arithmetic with outward rounding, at rising precision. A
// value that is still wider than one double at the highest precision is reported with rounds_to absent:
// inconclusive, never a guess.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reference/linear_jsd.h"

namespace fljsd {

// lo <= true value <= hi. NaN for a value that does not exist (see linear_jsd.h) and ±inf where the true
// value is infinite are exact: lo and hi are both that value. An arithmetic that said nothing gives
// [−inf, inf].
struct Enclosure {
  double lo = 0, hi = 0;  // rounded outward to double
  std::string lo_text,
      hi_text;  // the same bounds as decimals, rounded outward at the precision that was used
  std::optional<double> rounds_to;  // the double nearest to the true value, when the enclosure settles it

  bool contains(double value) const { return lo <= value && value <= hi; }
};

// What an interval of 40, 80 or 160 digits says. It settles a value when both ends round to the same double
// (to nearest, ties to even), because rounding is monotonic.
template <unsigned Digits>
Enclosure enclose(const Interval<Digits>& interval);

struct CertifiedResult {
  std::optional<Enclosure> loss;  // absent for Reduction::none
  Index counted = 0;
  std::vector<Enclosure> token_loss;  // [tokens]; [0, 0] for an ignored token
  // Row-major as in BasicResult; empty unless asked for.
  std::vector<Enclosure> student_input_grad, student_weight_grad, student_bias_grad;
  // Decimal digits of the interval arithmetic that settled the last value, or the cap of 160; 0 when every
  // value was known without it (p = q, ignored tokens).
  unsigned digits = 0;
};

// Certified losses and gradients; throws InvalidProblem as validate() does. Rows whose logits differ by one
// constant are recognised exactly and give [0, 0]. Gradients cost tokens × vocab × hidden interval
// operations: meant for small cases.
CertifiedResult certify(const Problem& problem, const Options& options, const Wanted& wanted = {});

// The certified losses of some tokens only, in the order given: how a large problem is spot-checked. Throws
// InvalidProblem as validate() does, and for a token that does not exist.
std::vector<Enclosure> certify_token_losses(const Problem& problem, const Options& options,
                                            const std::vector<Index>& tokens);

}  // namespace fljsd
