// SPDX-License-Identifier: Apache-2.0
#include "verify/probe/family_products.h"

#include <cstring>

namespace fljsd::probe {
namespace {

std::vector<std::uint16_t> bits_of(const Tensor& tensor) {
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(tensor.elements()));
  std::memcpy(bits.data(), tensor.data.get(), tensor.bytes());
  return bits;
}

}  // namespace

Products family_product(DType dtype, const Family& family, std::uint64_t seed, Index tokens, Index vocab,
                        Index hidden) {
  CaseSpec spec;
  spec.family = family.number;
  spec.tokens = tokens;
  spec.vocab = vocab;
  spec.student_hidden = hidden;
  spec.seed = seed;
  spec.dtype = dtype;
  const Case c = make_case(spec);
  return {dtype, 1, tokens, vocab, hidden, bits_of(c.student_input), bits_of(c.student_weight), {}};
}

}  // namespace fljsd::probe
