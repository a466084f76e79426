// SPDX-License-Identifier: Apache-2.0
// Questions to a tensor core: dot products of 16 pairs and an accumulator, each made so that designs of the
// adder tree that are conceivable answer differently.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "verify/probe/products.h"

namespace fljsd::probe {

struct Probe {
  std::string group;                       // what is asked
  std::array<std::uint16_t, 16> a{}, b{};  // +0 where not mentioned
  std::uint32_t c = 0;                     // fp32 bits
};

// All questions that the format (bf16 or f16) can express, always in the same order.
std::vector<Probe> fixed_probes(DType dtype);

// Eight probes to a tile: probe i is row and column i % 8 of batch element i / 8, its answer
// D[i/8][i%8][i%8].
Products probe_products(DType dtype, const std::vector<Probe>& probes);
std::vector<std::uint32_t> probe_answers(const std::vector<std::uint32_t>& d, std::size_t probes);

}  // namespace fljsd::probe
