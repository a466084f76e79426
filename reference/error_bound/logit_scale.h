// SPDX-License-Identifier: Apache-2.0
// Rows of logits in float64 together with what bounds the error of computing them.
//
// The bound of one logit needs Σ|a_i·w_i|, Σ(a_i·w_i)² and partial sums of its dot product. The first two are
// replaced by products of norms (Cauchy–Schwarz), which cost one pass over the weights instead of a matrix
// product each; the partial sums come for free when the product is formed in segments of the hidden size.
#pragma once

#include <span>
#include <vector>

#include "reference/error_bound/roundoff.h"
#include "reference/linear_jsd.h"

namespace fljsd {

// Upper bounds, off by a few roundings. Scaled by the largest element, so that squares neither under- nor
// overflow. Infinite or NaN if an element is.
struct Norms {
  double two, four;  // (Σ x²)^(1/2), (Σ x⁴)^(1/4)
};
Norms norms(std::span<const double> row);

// Norms of each row of a matrix. Infinite or NaN where the row is.
struct RowNorms {
  std::vector<double> two;   // (Σ x²)^(1/2)
  std::vector<double> four;  // (Σ x⁴)^(1/4)
};
// Of rows [0, rows) of a matrix; uses all cores.
RowNorms row_norms(const MatrixView& matrix, Index rows);
// Of the given rows only, in their order.
RowNorms row_norms(const MatrixView& matrix, std::span<const Index> rows);

// Norms whose products bound the sums of dot products of rows, Σ_h |a_h·w_h| <= two(a)·two(w), like those of
// row_norms(), but of columns that are balanced: column h of one matrix is multiplied, and of the other
// divided, by the power of two that makes their largest elements equal, which changes no product. Where some
// columns hold tiny inputs against large weights and others the reverse, Cauchy–Schwarz would otherwise
// multiply the large with the large. For products only: a norm by itself means nothing.
struct BalancedNorms {
  RowNorms input, weight;
};
// Of the given rows of the input and of rows [0, valid_vocab) of the weight; uses all cores.
BalancedNorms balanced_norms(const MatrixView& input, std::span<const Index> tokens, const MatrixView& weight,
                             Index valid_vocab);

// Logits of one model for a block of tokens.
struct LogitBlock {
  RowMajorMatrix<double> logits;  // [tokens of the block, valid vocab], bias and temperature applied
  // Root mean square of the partial sums at the ends of up to 16 equal segments of the hidden size, summed
  // forwards or backwards, whichever is larger; rounded up.
  RowMajorMatrix<float> partial;
};

// One model's logits for the given tokens; uses all cores. Memory: the block and a tile for each thread.
LogitBlock logit_block(const MatrixView& input, const MatrixView& weight,
                       const std::optional<VectorView>& bias, double temperature,
                       std::span<const Index> tokens, Index valid_vocab);

}  // namespace fljsd
