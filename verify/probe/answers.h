// SPDX-License-Identifier: Apache-2.0
// How answers are kept: bits in hexadecimal, and fingerprints of many.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "verify/probe/fixed_probes.h"
#include "verify/probe/products.h"

namespace fljsd::probe {

std::string hex(std::uint64_t value, int digits);

// "0:3f80*bf80 7-9:4000*3f80": places, bits of a and of b there; pairs of +0 are left out.
std::string to_text(const Probe& probe);
// The inverse. Throws std::invalid_argument for text that is not a question.
Probe parse_probe(std::string_view group, std::string_view question, std::uint32_t c);

// FNV-1a of the words, least significant byte first.
std::uint64_t fingerprint(const std::uint32_t* words, Index count);

// One for each so many tiles of a batch, or tokens (rows) of a single product; the last may be of fewer.
constexpr Index tiles_per_fingerprint = 4, tokens_per_fingerprint = 8;
std::vector<std::uint64_t> fingerprints(const Products& products, const std::vector<std::uint32_t>& d);

}  // namespace fljsd::probe
