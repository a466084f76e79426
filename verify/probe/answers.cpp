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
  for (std::size_t k = 0, next = 0; k < probe.a.size(); k = next) {
    const auto same = [&](std::size_t i) { return probe.a[i] == probe.a[k] && probe.b[i] == probe.b[k]; };
    for (next = k + 1; next < probe.a.size() && same(next);) ++next;
    if (probe.a[k] == 0 && probe.b[k] == 0) continue;
    if (!text.empty()) text += ' ';
    text += std::to_string(k);
    if (next > k + 1) text += '-' + std::to_string(next - 1);
    text += ':' + hex(probe.a[k], 4) + '*' + hex(probe.b[k], 4);
  }
  return text;
}

Probe parse_probe(std::string_view group, std::string_view question, std::uint32_t c) {
  Probe probe;
  probe.group = group;
  probe.c = c;
  const char* at = question.data();
  const char* const end = at + question.size();
  const auto refuse = [&](bool wrong) {
    if (wrong) throw std::invalid_argument("'" + std::string(question) + "' is not a question.");
  };
  const auto number = [&](auto& value, int base) {
    const auto [next, error] = std::from_chars(at, end, value, base);
    refuse(error != std::errc{});
    at = next;
  };
  const auto skip = [&](char expected) { refuse(at == end || *at++ != expected); };
  while (at != end) {
    if (at != question.data()) skip(' ');
    std::size_t first = 0;
    std::uint16_t a = 0, b = 0;
    number(first, 10);
    std::size_t last = first;
    if (at != end && *at == '-') {
      skip('-');
      number(last, 10);
    }
    refuse(first > last || last >= probe.a.size());
    skip(':');
    number(a, 16);
    skip('*');
    number(b, 16);
    std::fill(probe.a.begin() + static_cast<std::ptrdiff_t>(first),
              probe.a.begin() + static_cast<std::ptrdiff_t>(last) + 1, a);
    std::fill(probe.b.begin() + static_cast<std::ptrdiff_t>(first),
              probe.b.begin() + static_cast<std::ptrdiff_t>(last) + 1, b);
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
