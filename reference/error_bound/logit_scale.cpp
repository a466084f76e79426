// SPDX-License-Identifier: Apache-2.0
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ == 12
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // in GCC 12's own AVX-512 header: its bug 105593
#endif

#include "reference/error_bound/logit_scale.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/parallel.h"

namespace fljsd {
namespace {

Index ceil_div(Index a, Index b) {
  return (a + b - 1) / b;
}

}  // namespace

Norms norms(std::span<const double> row) {
  double largest = 0;
  for (double x : row) largest = !(std::abs(x) <= largest) ? std::abs(x) : largest;  // NaN stays
  if (!(largest > 0) || !std::isfinite(largest)) return {largest, largest};
  double square = 0, fourth = 0;
  for (double x : row) {
    const double s = (x / largest) * (x / largest);
    square += s;
    fourth += s * s;
  }
  // Summing and the roots err by less than this.
  const double up = 1 + (static_cast<double>(row.size()) + 8) * 0x1p-53;
  return {largest * std::sqrt(square) * up, largest * std::sqrt(std::sqrt(fourth)) * up};
}

RowNorms row_norms(const MatrixView& matrix, std::span<const Index> rows) {
  RowNorms result{std::vector<double>(rows.size()), std::vector<double>(rows.size())};
  // Pieces of about a million elements: enough work to pay for a thread.
  const Index count = static_cast<Index>(rows.size());
  const Index step = std::max<Index>(1, (Index{1} << 20) / std::max<Index>(1, matrix.cols));
  parallel_for(ceil_div(count, step), [&](Index piece) {
    std::vector<double> row(static_cast<std::size_t>(matrix.cols));
    for (Index i = piece * step; i < std::min(count, (piece + 1) * step); ++i) {
      const auto at = static_cast<std::size_t>(i);
      matrix.row(rows[at], 0, matrix.cols, row.data());
      const auto [two, four] = norms(row);
      result.two[at] = two;
      result.four[at] = four;
    }
  });
  return result;
}

RowNorms row_norms(const MatrixView& matrix, Index rows) {
  std::vector<Index> all(static_cast<std::size_t>(rows));
  std::iota(all.begin(), all.end(), Index{0});
  return row_norms(matrix, all);
}

LogitBlock logit_block(const MatrixView& input, const MatrixView& weight,
                       const std::optional<VectorView>& bias, double temperature,
                       std::span<const Index> tokens, Index valid_vocab) {
  const Index count = static_cast<Index>(tokens.size()), hidden = input.cols;
  RowMajorMatrix<double> a(count, hidden);
  for (Index t = 0; t < count; ++t)
    input.row(tokens[static_cast<std::size_t>(t)], 0, hidden, a.row(t).data());

  LogitBlock block{RowMajorMatrix<double>(count, valid_vocab), RowMajorMatrix<float>(count, valid_vocab)};
  // At least 4 terms a segment, and 16 segments at most: then the extra work is small beside the product.
  const Index segment = std::max<Index>(4, ceil_div(hidden, 16));
  const Index segments = ceil_div(hidden, segment);
  const Index tile_rows = 256;
  // Several tiles a piece, and no thread for less than a million multiplications.
  const Index work = std::max<Index>(1, count * hidden * tile_rows);
  const Index tiles_per_piece = std::max<Index>(1, (Index{1} << 20) / work);
  const Index tiles = ceil_div(valid_vocab, tile_rows);
  parallel_for(ceil_div(tiles, tiles_per_piece), [&](Index piece) {
    RowMajorMatrix<double> tile, first_moment, square;
    for (Index i = piece * tiles_per_piece; i < std::min(tiles, (piece + 1) * tiles_per_piece); ++i) {
      const Index first = i * tile_rows, rows = std::min(tile_rows, valid_vocab - first);
      auto sum = block.logits.middleCols(first, rows);
      sum.setZero();
      first_moment.setZero(count, rows);
      square.setZero(count, rows);
      for (Index s = 0; s < segments; ++s) {
        const Index begin = s * segment, cols = std::min(segment, hidden - begin);
        tile.resize(rows, cols);
        for (Index r = 0; r < rows; ++r) weight.row(first + r, begin, cols, tile.row(r).data());
        sum.noalias() += a.middleCols(begin, cols) * tile.transpose();
        for (Index t = 0; t < count; ++t)
          for (Index r = 0; r < rows; ++r) {
            first_moment(t, r) += sum(t, r);
            square(t, r) += sum(t, r) * sum(t, r);
          }
      }
      std::vector<double> b(static_cast<std::size_t>(rows));
      if (bias) load_run(bias->dtype, bias->data, first, rows, b.data());
      for (Index t = 0; t < count; ++t) {
        for (Index r = 0; r < rows; ++r) {
          // With total S and partial sums s, those of the reversed order are S − s; their mean square is
          // S² − 2·S·mean(s) + mean(s²).
          const double total = sum(t, r), forwards = square(t, r) / static_cast<double>(segments);
          const double backwards =
              total * (total - 2 * first_moment(t, r) / static_cast<double>(segments)) + forwards;
          // float rounds to nearest: a little more. An overflow to infinity only means "no better bound".
          block.partial(t, first + r) =
              static_cast<float>(std::sqrt(std::max(forwards, backwards)) * (1 + 0x1p-20));
          sum(t, r) = (sum(t, r) + b[static_cast<std::size_t>(r)]) / temperature;
        }
      }
    }
  });
  return block;
}

}  // namespace fljsd
