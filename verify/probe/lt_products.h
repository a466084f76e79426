// SPDX-License-Identifier: Apache-2.0
// The same products through cuBLASLt, algorithm by algorithm.
#pragma once

#include <string>
#include <vector>

#include "verify/probe/products.h"

namespace fljsd::probe {

struct LtAnswer {
  std::string algorithm;  // "id=66 tile=… stages=… cluster=… split_k=… reduction=…"
  int split_k = 1;
  std::vector<std::uint32_t> d;  // fp32 bits, [rows, cols]; empty if it failed
};

// Up to `most` algorithms in the order of the heuristics, the default first, with operands aligned to
// `alignment` bytes at least. One product (batch = 1) without accumulator, fp32 output, 32-bit compute type.
// Throws std::runtime_error when cuBLASLt itself fails.
std::vector<LtAnswer> multiply_with_cublaslt(const Products& products, int most, int alignment);

std::string cublaslt_version();

}  // namespace fljsd::probe
