// SPDX-License-Identifier: Apache-2.0
// Random products whose operands are a pure function of (format, kind, seed): the same bits on every machine,
// so that only the answers of a GPU need to be kept.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "verify/probe/products.h"

namespace fljsd::probe {

// What the operands look like. Exponents are those of the leading bit.
enum class Kind {
  narrow,          // exponents −2 … 2
  medium,          // exponents −8 … 8
  wide,            // exponents −30 … 30 (f16: all of its)
  any_finite,      // any finite bits
  any_bits,        // any bits, NaN and infinities included
  sparse,          // as medium, three in four elements of A zero of either sign
  cancelling,      // every dot product has pairs that cancel, up to some last bits
  cancelled_by_c,  // the accumulator is minus the rounded dot product, or off by a few units
  powers,          // ± powers of two, exponents −20 … 20
  underflow,       // products and accumulator about the smallest fp32 numbers
  overflow,        // products and accumulator about the largest
  ruled_by_c,      // the accumulator exceeds the products by up to 2^30
  awkward,         // zeros, subnormals, powers of two, ones, largest numbers, rarely infinity or NaN
};
std::span<const Kind> kinds();
std::string_view name(Kind kind);

// `batch` tiles of 64 × 8 × depth with accumulators. Element (tile, row, col) of the kind depends on `batch`
// and `depth` no more than it must: tile t of a larger batch is the same.
Products random_products(DType dtype, Kind kind, std::uint64_t seed, Index batch, Index depth);

// One product of these sizes without accumulator, of a kind that does not cancel. Its depth may be anything.
Products random_gemm(DType dtype, Kind kind, std::uint64_t seed, Index rows, Index cols, Index depth);

}  // namespace fljsd::probe
