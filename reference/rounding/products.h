// SPDX-License-Identifier: Apache-2.0
// The three matrix products of a pipeline, on tiles of tensors decoded as they are needed. All sums are
// ordered (ordered_product.h), so tiles and threads leave every bit as it is. Real is the type they are
// summed in, float or double; tensors wider than Real are rounded to it first.
#pragma once

#include <span>
#include <vector>

#include "reference/linear_jsd.h"
#include "reference/problem.h"
#include "reference/rounding/pipeline.h"

namespace fljsd {

// The given rows, packed: [rows.size(), matrix.cols].
template <class Real>
std::vector<Real> decode_rows(const MatrixView& matrix, std::span<const Index> rows);

// input[tokens] · weightᵀ for the first `vocab` rows of the weight, packed: [tokens.size(), vocab]. Summed
// over hidden, ascending.
template <class Real>
std::vector<Real> logit_products(const MatrixView& input, std::span<const Index> tokens,
                                 const MatrixView& weight, Index vocab);

// A row of an input gradient, [all tokens, hidden].
struct InputGradientRow {
  RowMajorMatrix<double>* gradient;
  Index token;
};

// Row i of dlogits · weight is written to rows[i], where dlogits is packed [rows.size(), vocab]. Summed over
// the vocabulary, ascending; unrounded beyond Real. Rows may belong to different gradients: the weight is
// decoded once for all of them.
template <class Real>
void input_gradient(std::span<const Real> dlogits, std::span<const InputGradientRow> rows, Index vocab,
                    const MatrixView& weight);

// A gradient that sums over tokens, block after block: element (r, c) is Σ_t dlogits[t][rows[r]]·right[t][c],
// tokens ascending. With right = the student's input that is the weight gradient, with right = 1 that of the
// bias.
class TokenSum {
 public:
  // `tokens`: the tokens that blocks will be made of, in order. chunk = 0 sums them all in one go. Otherwise
  // the tokens [i·chunk, (i+1)·chunk) of the batch are summed, their sum is rounded to `storage` and added to
  // the total in Real, and the total is rounded to `storage`.
  TokenSum(std::vector<Index> rows, Index cols, std::vector<Index> tokens, Index chunk, DType storage);

  // The next `count` tokens: dlogits packed [count, vocab], right packed [count, cols]. Rows at or past
  // `vocab` stay 0.
  template <class Real>
  void add(Index count, std::span<const Real> dlogits, Index vocab, std::span<const Real> right);

  // [rows, cols]; every token must have been added.
  RowMajorMatrix<double>& total() { return total_; }

 private:
  // Tokens [first, first + count) of a block that belong to one chunk.
  struct Segment {
    Index first, count;
    bool opens, closes;  // whether it holds the chunk's first token, and its last
  };
  std::vector<Segment> segments(Index count) const;

  std::vector<Index> rows_, tokens_;
  Index chunk_;
  DType storage_;
  Index done_ = 0;                // tokens added so far
  RowMajorMatrix<double> total_;  // holds values of Real exactly
  RowMajorMatrix<double> open_;   // the sum of a chunk that continues in the next block, if there is one
};

}  // namespace fljsd
