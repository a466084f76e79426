// SPDX-License-Identifier: Apache-2.0
// Which products are asked, and the labels under which their answers are kept: shared by the program that
// asks and by those who read.
#pragma once

#include <algorithm>
#include <array>
#include <string>

#include "verify/probe/family_products.h"
#include "verify/probe/products.h"
#include "verify/probe/random_products.h"

namespace fljsd::probe {

struct RandomPlan {
  std::uint64_t seed;
  Index tiles, depth;  // of each kind
};
// Single instructions, then chains of four and of sixteen: 13 kinds · (80 + 16 + 8) · 512 dot products.
constexpr std::array<RandomPlan, 3> random_plans{{{1, 80, 16}, {2, 16, 64}, {3, 8, 256}}};

inline std::string random_label(DType dtype, const RandomPlan& plan, Kind kind, Instruction instruction) {
  return std::string(name(dtype)) + "/k" + std::to_string(plan.depth) + '/' + std::string(name(kind)) + '/' +
         name(instruction);
}

constexpr std::uint64_t family_seed = 4;
inline std::string family_label(DType dtype, const Family& family, Instruction instruction) {
  return std::string(name(dtype)) + '/' + std::string(family.name) + '/' + name(instruction);
}

struct LtPlan {
  DType dtype;
  Kind kind;
  std::uint64_t seed;
  Index rows, cols, depth;  // tokens, vocab, hidden
  int algorithms;           // at most
  int alignment;            // bytes
};
constexpr std::array<LtPlan, 7> lt_plans{{
    {DType::bf16, Kind::narrow, 5, 64, 256, 4096, 24, 16},
    {DType::bf16, Kind::medium, 6, 256, 2048, 4096, 24, 16},
    {DType::bf16, Kind::narrow, 7, 1024, 2048, 4096, 24, 16},
    {DType::bf16, Kind::narrow, 8, 64, 64, 16384, 24, 16},
    {DType::bf16, Kind::narrow, 9, 128, 512, 4092, 24, 8},
    {DType::bf16, Kind::narrow, 10, 128, 512, 4090, 24, 4},
    {DType::f16, Kind::narrow, 11, 256, 512, 4096, 24, 16},
}};
inline std::string lt_label(const LtPlan& plan) {
  return std::string(name(plan.dtype)) + '/' + std::to_string(plan.rows) + 'x' + std::to_string(plan.cols) +
         'x' + std::to_string(plan.depth);
}

// Every so many rows and columns: at most 32 rows and 64 columns of D.
inline std::vector<std::uint32_t> sample(const std::vector<std::uint32_t>& d, Index rows, Index cols) {
  std::vector<std::uint32_t> kept;
  if (d.empty()) return kept;
  const Index row_step = std::max<Index>(1, rows / 32), col_step = std::max<Index>(1, cols / 64);
  for (Index r = 0; r < rows; r += row_step)
    for (Index c = 0; c < cols; c += col_step) kept.push_back(d[static_cast<std::size_t>(r * cols + c)]);
  return kept;
}

// The same product with columns of +0 up to a multiple of 16.
inline Products whole_instructions(const Products& p) {
  Products padded = p;
  padded.depth = (p.depth + 15) / 16 * 16;
  const auto pad = [&](const std::vector<std::uint16_t>& from, Index rows) {
    std::vector<std::uint16_t> to(static_cast<std::size_t>(rows * padded.depth));
    for (Index r = 0; r < rows; ++r)
      std::copy_n(from.begin() + r * p.depth, p.depth, to.begin() + r * padded.depth);
    return to;
  };
  padded.a = pad(p.a, p.batch * p.rows);
  padded.b = pad(p.b, p.batch * p.cols);
  return padded;
}

}  // namespace fljsd::probe
