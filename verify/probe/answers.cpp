// SPDX-License-Identifier: Apache-2.0
#include "verify/probe/answers.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <stdexcept>

namespace fljsd::probe {

std::string hex(std::uint64_t value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%0*llx", digits, static_cast<unsigned long long>(value));
  return text;
}

std::string to_text(const Probe& probe) {
  std::string text;
  for (std::size_t k = 0; k < probe.a.size(); ++k) {
    if (probe.a[k] == 0 && probe.b[k] == 0) continue;
    if (!text.empty()) text += ' ';
    text += std::to_string(k) + ':' + hex(probe.a[k], 4) + '*' + hex(probe.b[k], 4);
  }
  return text;
}

Probe parse_probe(std::string_view group, std::string_view question, std::uint32_t c) {
  Probe probe;
  probe.group = group;
  probe.c = c;
  const char* at = question.data();
  const char* const end = at + question.size();
  const auto number = [&](auto& value, int base) {
    const auto [next, error] = std::from_chars(at, end, value, base);
    if (error != std::errc{}) throw std::invalid_argument("not a question: " + std::string(question));
    at = next;
  };
  const auto sign = [&](char expected) {
    if (at == end || *at++ != expected)
      throw std::invalid_argument("not a question: " + std::string(question));
  };
  while (at != end) {
    if (at != question.data()) sign(' ');
    std::size_t k = 0;
    number(k, 10);
    if (k >= probe.a.size()) throw std::invalid_argument("not a question: " + std::string(question));
    sign(':');
    number(probe.a[k], 16);
    sign('*');
    number(probe.b[k], 16);
  }
  return probe;
}

std::uint64_t fingerprint(const std::uint32_t* words, Index count) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (Index i = 0; i < count; ++i)
    for (int byte = 0; byte < 4; ++byte) hash = (hash ^ (words[i] >> 8 * byte & 0xff)) * 0x100000001b3;
  return hash;
}

std::vector<std::uint64_t> fingerprints(const Products& p, const std::vector<std::uint32_t>& d) {
  const Index size = p.batch > 1 ? tiles_per_fingerprint * p.rows * p.cols : tokens_per_fingerprint * p.cols;
  const auto words = static_cast<Index>(d.size());
  std::vector<std::uint64_t> all;
  for (Index first = 0; first < words; first += size)
    all.push_back(fingerprint(d.data() + first, std::min(size, words - first)));
  return all;
}

}  // namespace fljsd::probe
