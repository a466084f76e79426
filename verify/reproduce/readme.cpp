// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include <fmt/format.h>

#include "verify/reproduce/render.h"

namespace fljsd {
namespace {

std::string cell(const BenchRow* r) {
  return r == nullptr ? "–" : fmt::format("{:.2f} ms ({:.2f})", r->median(), r->ratio());
}

std::size_t find_once(const std::string& document, const std::string& marker) {
  const std::size_t at = document.find(marker);
  if (at == document.npos || document.find(marker, at + 1) != document.npos)
    throw std::invalid_argument("the line " + marker + " must stand in the document once.");
  return at;
}

}  // namespace

std::string readme_speed(const BenchRecord& b) {
  std::string text = fmt::format(
      "Published inputs (uniform), vocab {}, hidden {}, bf16, {}, {}: median time and, in brackets, its "
      "ratio to "
      "the plain matrix products of the same run (forward: two; with gradients: four, and six for "
      "chunked-vocab, which computes the logits twice, and for fused, which leaves gradients to it).\n",
      b.vocab, b.hidden, b.gpu.name, b.run.date.substr(0, 10));
  for (const std::string pass : {"forward", "full"}) {
    std::vector<Index> tokens;
    std::vector<std::string> variants;
    for (const BenchRow& r : b.rows) {
      if (r.inputs != "uniform" || r.pass != pass || r.is_peer()) continue;
      if (tokens.empty() || tokens.back() != r.tokens) tokens.push_back(r.tokens);
      if (tokens.size() == 1) variants.push_back(r.variant);
    }
    if (tokens.empty()) continue;
    text += fmt::format("\n| {} |", pass == "full" ? "forward and gradients" : "forward");
    std::string rule = "|---|";
    for (const Index t : tokens) {
      text += fmt::format(" {} tokens |", t);
      rule += "---|";
    }
    text += fmt::format(" workspace at {} |\n{}---|\n", tokens.back(), rule);
    for (const std::string& variant : variants) {
      text += fmt::format("| `{}` |", variant);
      const BenchRow* last = nullptr;
      for (const Index t : tokens) {
        last = b.find("uniform", t, pass, variant);
        text += fmt::format(" {} |", cell(last));
      }
      text += last == nullptr
                  ? " – |\n"
                  : fmt::format(" {:.0f} MB |\n", static_cast<double>(last->workspace_bytes) * 1e-6);
    }
  }
  return text;
}

std::string replace_section(const std::string& document, const std::string& name, const std::string& text) {
  const std::string begin = "<!-- begin:" + name + " -->\n", end = "<!-- end:" + name + " -->\n";
  const std::size_t from = find_once(document, begin) + begin.size(), to = find_once(document, end);
  if (to < from) throw std::invalid_argument("the line " + end + " stands before " + begin);
  return document.substr(0, from) + text + document.substr(to);
}

}  // namespace fljsd
