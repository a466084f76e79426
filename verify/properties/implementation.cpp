// SPDX-License-Identifier: Apache-2.0
#include "verify/properties/implementation.h"

namespace fljsd {

const Implementation& double_tier() {
  static const Implementation implementation = [] {
    Implementation tier;
    tier.name = "double tier";
    tier.compute_views = [](const Problem& problem, const Options& options) {
      return linear_jsd<double>(problem, options, Wanted::all());
    };
    tier.compute = [](const Case& c) { return linear_jsd<double>(c.problem(), c.options, Wanted::all()); };
    tier.bound = [](const Case& c, const Result& near) {
      return double_tier_bound(c.problem(), c.options, Wanted::all(), near);
    };
    tier.removes_ignored_tokens = true;
    return tier;
  }();
  return implementation;
}

}  // namespace fljsd
