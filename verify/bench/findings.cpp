// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "verify/bench/bench.h"

namespace fljsd {

std::vector<std::string> bench_findings(const BenchRecord& record) {
  constexpr double promise = 5e-6;
  std::vector<std::string> findings;
  for (const BenchRow& r : record.rows) {
    const std::string where =
        fmt::format("{}, {} inputs, {} tokens, {}", r.variant, r.inputs, r.tokens, r.pass);
    if (!r.outputs_repeat)
      findings.push_back(where + ": the losses of a timed run differ from those of the checked run.");
    const bool rounded = r.variant.find("bf16-logits") != r.variant.npos;
    if (!r.is_baseline() && !rounded && r.largest_token_error && !(*r.largest_token_error <= promise)) {
      findings.push_back(fmt::format("{}: a token's loss is off by {}, more than {}.", where,
                                     *r.largest_token_error, promise));
    }
    for (const auto& [what, error] :
         {std::pair{"input", r.input_grad_error}, {"weight", r.weight_grad_error}}) {
      if (error && std::isnan(*error))
        findings.push_back(fmt::format("{}: the {} gradient holds NaN.", where, what));
    }
  }
  return findings;
}

}  // namespace fljsd
