// SPDX-License-Identifier: Apache-2.0
// Which number of an answer to show: the one that is most wrong, or that changed.
#pragma once

#include <optional>
#include <string>

#include "verify/fuzz/campaign.h"
#include "verify/judge/verdict.h"

namespace fljsd {

// How a number is wrong. Failures without a number have the name of a Failure::Kind in its place.
namespace manner {
inline constexpr const char* off = "off";                // finite, but too far from the truth
inline constexpr const char* not_finite = "not finite";  // NaN or infinite where the truth is finite
inline constexpr const char* special_lost =
    "NaN or infinity lost";  // something else where the truth is NaN or infinite
}  // namespace manner

const char* manner_of(const JudgedValue& value);

// Quantities in the order in which they are computed, so that the first wrong one is nearest to the fault.
int rank_of_quantity(const std::string& quantity);

// The element that decides a row of a verdict: where NaN or infinity is not matched, else of the largest
// error in the worst position.
JudgedValue worst_value(const VerdictRow& row, const Truth& truth, const Result& got,
                        const ErrorBound& allowed);

// The truth's own error bound where the row is worst, in the row's measure.
double own_bound(const VerdictRow& row, const ErrorBound& truth_bound, const ErrorBound& allowed);

// "token_loss[3] is 0x1p-1 (0.5), but the truth is 0x1p-2 (0.25), and fp32-logits allows 1.2e-6."
std::string sentence(const VerdictRow& row, const JudgedValue& value, AccuracyClass accuracy_class);

// The first number that is not the same in both answers; NaN is the same as NaN, 0 as −0.
struct Difference {
  std::string quantity, what;
  double first = 0, second = 0;
};
std::optional<Difference> first_difference(const Result& a, const Result& b);

}  // namespace fljsd
