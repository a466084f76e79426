// SPDX-License-Identifier: Apache-2.0
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ == 12
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // in GCC 12's own AVX-512 header: its bug 105593
#endif

#include "reference/error_bound/logit_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>

#include "reference/largest.h"
#include "reference/parallel.h"

namespace fljsd {
namespace {

Index ceil_div(Index a, Index b) {
  return (a + b - 1) / b;
}

// Calls piece(first, last) for pieces of `count` rows of `cols` elements, about a million elements each:
// enough work to pay for a thread.
template <class Piece>
void for_pieces(Index count, Index cols, const Piece& piece) {
  const Index step = std::max<Index>(1, (Index{1} << 20) / std::max<Index>(1, cols));
  parallel_for(ceil_div(count, step), [&](Index i) { piece(i * step, std::min(count, (i + 1) * step)); });
}

// Norms of rows whose columns are multiplied by `scale`, powers of two; of the rows as they are if it is
// empty.
RowNorms scaled_norms(const MatrixView& matrix, std::span<const Index> rows, std::span<const double> scale) {
  RowNorms result{std::vector<double>(rows.size()), std::vector<double>(rows.size())};
  for_pieces(static_cast<Index>(rows.size()), matrix.cols, [&](Index first, Index last) {
    std::vector<double> row(static_cast<std::size_t>(matrix.cols));
    // What a scaled element may lose to underflow.
    const double lost =
        scale.empty() ? 0 : std::numeric_limits<double>::denorm_min() * static_cast<double>(row.size());
    for (Index i = first; i < last; ++i) {
      const auto at = static_cast<std::size_t>(i);
      matrix.row(rows[at], 0, matrix.cols, row.data());
      for (std::size_t h = 0; h < scale.size(); ++h) row[h] *= scale[h];
      const auto [two, four] = norms(row);
      result.two[at] = two + lost;
      result.four[at] = four + lost;
    }
  });
  return result;
}

// The largest |element| of each column over the given rows; infinite or NaN if one is.
std::vector<double> column_maxima(const MatrixView& matrix, std::span<const Index> rows) {
  std::vector<double> result(static_cast<std::size_t>(matrix.cols));
  std::mutex mutex;
  const auto join = [](std::vector<double>& maxima, const std::vector<double>& row) {
    for (std::size_t h = 0; h < maxima.size(); ++h) maxima[h] = larger_or_nan(maxima[h], std::abs(row[h]));
  };
  for_pieces(static_cast<Index>(rows.size()), matrix.cols, [&](Index first, Index last) {
    std::vector<double> row(result.size()), maxima(result.size());
    for (Index i = first; i < last; ++i) {
      matrix.row(rows[static_cast<std::size_t>(i)], 0, matrix.cols, row.data());
      join(maxima, row);
    }
    const std::lock_guard lock(mutex);
    join(result, maxima);
  });
  return result;
}

std::vector<Index> first_rows(Index rows) {
  std::vector<Index> all(static_cast<std::size_t>(rows));
  std::iota(all.begin(), all.end(), Index{0});
  return all;
}

}  // namespace

Norms norms(std::span<const double> row) {
  double largest = 0;
  for (double x : row) largest = larger_or_nan(largest, std::abs(x));
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
  return scaled_norms(matrix, rows, {});
}

RowNorms row_norms(const MatrixView& matrix, Index rows) {
  return row_norms(matrix, first_rows(rows));
}

BalancedNorms balanced_norms(const MatrixView& input, std::span<const Index> tokens, const MatrixView& weight,
                             Index valid_vocab) {
  const std::vector<Index> entries = first_rows(valid_vocab);
  std::vector<double> up = column_maxima(input, tokens), down = column_maxima(weight, entries);
  for (std::size_t h = 0; h < up.size(); ++h) {
    const double a = up[h], w = down[h];
    up[h] = down[h] = 1;
    if (!std::isfinite(a) || !std::isfinite(w)) continue;  // the bound will be infinite anyway
    if (a == 0 || w == 0) {                                // all products are 0
      up[h] = down[h] = 0;
      continue;
    }
    const int shift = std::clamp((std::ilogb(w) - std::ilogb(a)) / 2, -256, 256);
    up[h] = std::ldexp(1.0, shift);
    down[h] = std::ldexp(1.0, -shift);
  }
  return {scaled_norms(input, tokens, up), scaled_norms(weight, entries, down)};
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
