// SPDX-License-Identifier: Apache-2.0
// The table of errors against float64 truth that documents show.
#include <algorithm>

#include <fmt/format.h>

#include "reference/largest.h"
#include "verify/report/number.h"
#include "verify/reproduce/render.h"

namespace fljsd {
namespace {

std::string number(const std::optional<double>& value) {
  return value ? short_number(*value, 2) : "–";
}

std::optional<double> worse(const std::optional<double>& a, const std::optional<double>& b) {
  return a && b ? larger_or_nan(*a, *b) : a ? a : b;
}

std::string cell(const BenchRow* forward, const BenchRow* full) {
  const auto token = worse(forward ? forward->largest_token_error : std::nullopt,
                           full ? full->largest_token_error : std::nullopt);
  return fmt::format("{}; {}, {}", number(token), number(full ? full->input_grad_error : std::nullopt),
                     number(full ? full->weight_grad_error : std::nullopt));
}

}  // namespace

std::string readme_accuracy(const BenchRecord& b) {
  std::vector<std::string> families, variants;
  std::vector<Index> tokens;
  const auto note = [](auto& list, const auto& value) {
    if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
  };
  for (const BenchRow& r : b.rows) {
    if (!r.largest_token_error || r.is_peer()) continue;
    note(families, r.inputs), note(variants, r.variant), note(tokens, r.tokens);
  }
  std::string text = fmt::format(
      "Against float64 truth, vocab {}, hidden {}, bf16, {}, {}: the largest error of a token's loss, in "
      "nats, of "
      "either pass; then the relative errors of the gradients of student input and weight, 2-norm.\n",
      b.vocab, b.hidden, b.gpu.name, b.run.date.substr(0, 10));
  for (const std::string& family : families) {
    text += fmt::format("\n| {} inputs |", family);
    std::string rule = "|---|";
    for (const Index t : tokens) text += fmt::format(" {} tokens |", t), rule += "---|";
    text += "\n" + rule + "\n";
    for (const std::string& variant : variants) {
      text += fmt::format("| `{}` |", variant);
      for (const Index t : tokens)
        text += fmt::format(" {} |",
                            cell(b.find(family, t, "forward", variant), b.find(family, t, "full", variant)));
      text += "\n";
    }
  }
  return text;
}

}  // namespace fljsd
