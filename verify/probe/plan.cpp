// SPDX-License-Identifier: Apache-2.0
#include "verify/probe/plan.h"

#include <algorithm>

namespace fljsd::probe {

std::vector<RandomPlan> random_plans() {
  std::vector<RandomPlan> plans;
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Kind kind : kinds()) {
      plans.push_back({dtype, kind, 1, 80, 16});
      plans.push_back({dtype, kind, 2, 16, 64});
      plans.push_back({dtype, kind, 3, 8, 256});
    }
  return plans;
}

std::string label(const RandomPlan& plan) {
  return std::string(name(plan.dtype)) + "/k" + std::to_string(plan.depth) + '/' +
         std::string(name(plan.kind));
}

Products make_products(const RandomPlan& plan) {
  return random_products(plan.dtype, plan.kind, plan.seed, plan.tiles, plan.depth);
}

std::vector<FamilyPlan> family_plans() {
  std::vector<FamilyPlan> plans;
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Family& family : families()) plans.push_back({dtype, &family, 4});
  return plans;
}

std::string label(const FamilyPlan& plan) {
  return std::string(name(plan.dtype)) + '/' + std::string(plan.family->name);
}

Products make_products(const FamilyPlan& plan) {
  return family_product(plan.dtype, *plan.family, plan.seed);
}

std::vector<LtPlan> lt_plans() {
  return {
      {DType::bf16, Kind::narrow, 5, 64, 256, 4096, 24, 16},
      {DType::bf16, Kind::medium, 6, 256, 2048, 4096, 24, 16},
      {DType::bf16, Kind::narrow, 7, 1024, 2048, 4096, 24, 16},
      {DType::bf16, Kind::narrow, 8, 64, 64, 16384, 24, 16},
      {DType::bf16, Kind::narrow, 12, 128, 512, 4088, 24, 16},
      {DType::bf16, Kind::narrow, 9, 128, 512, 4092, 24, 8},
      {DType::bf16, Kind::narrow, 10, 128, 512, 4090, 24, 4},
      {DType::f16, Kind::narrow, 11, 256, 512, 4096, 24, 16},
      {DType::f16, Kind::narrow, 13, 128, 512, 1000, 24, 16},
  };
}

std::string label(const LtPlan& plan) {
  return std::string(name(plan.dtype)) + '/' + std::to_string(plan.rows) + 'x' + std::to_string(plan.cols) +
         'x' + std::to_string(plan.depth);
}

Products whole_instructions(const Products& p) {
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
