// SPDX-License-Identifier: Apache-2.0
// Which products are asked: shared by the program that asks a GPU and by those who hold the answers against a
// model.
#pragma once

#include <string>
#include <vector>

#include "verify/probe/family_products.h"
#include "verify/probe/fixed_probes.h"
#include "verify/probe/random_products.h"

namespace fljsd::probe {

// Random tiles with accumulators: single instructions, and chains of 4 and of 16.
struct RandomPlan {
  DType dtype;
  Kind kind;
  std::uint64_t seed;
  Index tiles, depth;
};
std::vector<RandomPlan> random_plans();
std::string label(const RandomPlan& plan);  // "bf16/k64/narrow"
Products make_products(const RandomPlan& plan);

// Logits of each family: one tile of the widest instruction, and the usual hidden size.
struct FamilyPlan {
  DType dtype;
  const Family* family;
  std::uint64_t seed;
};
std::vector<FamilyPlan> family_plans();
std::string label(const FamilyPlan& plan);  // "bf16/peaked"
Products make_products(const FamilyPlan& plan);

// Products for cuBLASLt's algorithms.
struct LtPlan {
  DType dtype;
  Kind kind;
  std::uint64_t seed;
  Index rows, cols, depth;  // tokens, vocab, hidden
  int algorithms;           // at most
  int alignment;            // bytes
};
std::vector<LtPlan> lt_plans();
std::string label(const LtPlan& plan);  // "bf16/256x2048x4096"
// The same product with elements of +0 up to a depth that is a multiple of 16.
Products whole_instructions(const Products& products);

}  // namespace fljsd::probe
