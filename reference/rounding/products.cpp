// SPDX-License-Identifier: Apache-2.0
#include "reference/rounding/products.h"

#include <algorithm>

#include "reference/parallel.h"
#include "reference/rounding/ordered_product.h"
#include "reference/rounding/row.h"

namespace fljsd {
namespace {

// Tiles: one operand's tile and the block of sums stay in the level-2 cache.
constexpr Index tile_vocab = 96;  // a multiple of the 6 rows that ordered_product.cpp updates at a time
constexpr Index tile_hidden = 256;

Index pieces(Index size, Index step) {
  return (size + step - 1) / step;
}

// Rows × cols of a matrix, packed, into memory that is kept from call to call.
template <class Real>
void decode_tile(const MatrixView& matrix, Index row, Index rows, Index col, Index cols,
                 std::vector<Real>& tile) {
  tile.resize(static_cast<std::size_t>(rows * cols));
  for (Index r = 0; r < rows; ++r) matrix.row(row + r, col, cols, tile.data() + r * cols);
}

}  // namespace

template <class Real>
std::vector<Real> decode_rows(const MatrixView& matrix, std::span<const Index> rows) {
  std::vector<Real> decoded(rows.size() * static_cast<std::size_t>(matrix.cols));
  Real* out = decoded.data();
  for (Index row : rows) {
    matrix.row(row, 0, matrix.cols, out);
    out += matrix.cols;
  }
  return decoded;
}

template <class Real>
std::vector<Real> logit_products(const MatrixView& input, std::span<const Index> tokens,
                                 const MatrixView& weight, Index vocab) {
  const Index count = static_cast<Index>(tokens.size()), hidden = input.cols;
  // Tokens are the columns here: they are contiguous for every k, and the decoded weight needs no
  // transposing.
  std::vector<Real> columns(static_cast<std::size_t>(hidden * count));
  const std::vector<Real> decoded = decode_rows<Real>(input, tokens);
  for (Index t = 0; t < count; ++t)
    for (Index k = 0; k < hidden; ++k)
      columns[static_cast<std::size_t>(k * count + t)] = decoded[static_cast<std::size_t>(t * hidden + k)];

  std::vector<Real> out(static_cast<std::size_t>(count * vocab));
  constexpr Index tiles_per_piece = 8;  // so that a thread allocates its tile once for all of them
  parallel_for(pieces(vocab, tiles_per_piece * tile_vocab), [&](Index piece) {
    std::vector<Real> tile, sums;
    const Index end = std::min(vocab, (piece + 1) * tiles_per_piece * tile_vocab);
    for (Index v = piece * tiles_per_piece * tile_vocab; v < end; v += tile_vocab) {
      const Index rows = std::min(tile_vocab, end - v);
      sums.assign(static_cast<std::size_t>(rows * count), Real{0});
      for (Index k = 0; k < hidden; k += tile_hidden) {
        const Index depth = std::min(tile_hidden, hidden - k);
        decode_tile(weight, v, rows, k, depth, tile);
        add_ordered_product<Real>(rows, depth, count, tile.data(), depth, columns.data() + k * count, count,
                                  sums.data(), count);
      }
      for (Index t = 0; t < count; ++t)
        for (Index r = 0; r < rows; ++r)
          out[static_cast<std::size_t>(t * vocab + v + r)] = sums[static_cast<std::size_t>(r * count + t)];
    }
  });
  return out;
}

template <class Real>
void input_gradient(std::span<const Real> dlogits, std::span<const InputGradientRow> rows, Index vocab,
                    const MatrixView& weight) {
  const Index count = static_cast<Index>(rows.size());
  parallel_for(pieces(weight.cols, tile_hidden), [&](Index piece) {
    const Index col = piece * tile_hidden, cols = std::min(tile_hidden, weight.cols - col);
    std::vector<Real> tile, sums(static_cast<std::size_t>(count * cols));
    for (Index v = 0; v < vocab; v += tile_vocab) {
      const Index depth = std::min(tile_vocab, vocab - v);
      decode_tile(weight, v, depth, col, cols, tile);
      add_ordered_product<Real>(count, depth, cols, dlogits.data() + v, vocab, tile.data(), cols, sums.data(),
                                cols);
    }
    for (Index i = 0; i < count; ++i) {
      const InputGradientRow& row = rows[static_cast<std::size_t>(i)];
      std::copy_n(sums.data() + i * cols, cols, row.gradient->row(row.token).data() + col);
    }
  });
}

TokenSum::TokenSum(std::vector<Index> rows, Index cols, std::vector<Index> tokens, Index chunk, DType storage)
    : rows_(std::move(rows)), tokens_(std::move(tokens)), chunk_(chunk), storage_(storage) {
  total_ = RowMajorMatrix<double>::Zero(static_cast<Index>(rows_.size()), cols);
}

std::vector<TokenSum::Segment> TokenSum::segments(Index count) const {
  const Index all = static_cast<Index>(tokens_.size());
  const auto chunk_of = [&](Index i) { return tokens_[static_cast<std::size_t>(i)] / chunk_; };
  std::vector<Segment> found;
  for (Index i = done_; i < done_ + count; ++i) {
    const bool opens = i == 0 || chunk_of(i - 1) != chunk_of(i);
    if (opens || i == done_) found.push_back({i - done_, 0, opens, false});
    ++found.back().count;
    found.back().closes = i + 1 == all || chunk_of(i + 1) != chunk_of(i);
  }
  return found;
}

template <class Real>
void TokenSum::add(Index count, std::span<const Real> dlogits, Index vocab, std::span<const Real> right) {
  const bool whole = chunk_ == 0;
  const std::vector<Segment> parts = whole ? std::vector<Segment>{{0, count, false, false}} : segments(count);
  const bool stays_open = !whole && !parts.empty() && !parts.back().closes;
  if (stays_open && open_.size() == 0) open_.resizeLike(total_);
  const Index cols = total_.cols();
  // Rows of a piece: a tile, or more when that is less work than starting a thread.
  constexpr Index worthwhile = Index{1} << 18;
  const Index step = std::max(tile_vocab, worthwhile / std::max<Index>(1, cols * count));

  parallel_for(pieces(total_.rows(), step), [&](Index piece) {
    const Index row = piece * step, rows = std::min(step, total_.rows() - row);
    // The columns of dlogits that these rows need, transposed.
    std::vector<Real> left(static_cast<std::size_t>(rows * count));
    for (Index r = 0; r < rows; ++r) {
      const Index v = rows_[static_cast<std::size_t>(row + r)];
      for (Index t = 0; v < vocab && t < count; ++t)
        left[static_cast<std::size_t>(r * count + t)] = dlogits[static_cast<std::size_t>(t * vocab + v)];
    }
    std::vector<Real> sums;
    std::vector<double> rounded;
    for (Index col = 0; col < cols; col += tile_hidden) {
      const Index width = std::min(tile_hidden, cols - col);
      auto total = total_.block(row, col, rows, width);
      const auto load_sums = [&](const RowMajorMatrix<double>& from) {
        for (Index r = 0; r < rows; ++r)
          std::transform(from.row(row + r).data() + col, from.row(row + r).data() + col + width,
                         sums.begin() + r * width, [](double value) { return static_cast<Real>(value); });
      };
      for (const Segment& part : parts) {
        sums.assign(static_cast<std::size_t>(rows * width), Real{0});
        if (whole) {
          load_sums(total_);
        } else if (!part.opens) {
          load_sums(open_);
        }
        add_ordered_product<Real>(rows, part.count, width, left.data() + part.first, count,
                                  right.data() + part.first * cols + col, cols, sums.data(), width);
        if (part.closes) {
          rounded.assign(sums.begin(), sums.end());
          round_all(storage_, rounded);
          for (Index r = 0; r < rows; ++r)
            for (Index c = 0; c < width; ++c) {
              double& sum = rounded[static_cast<std::size_t>(r * width + c)];
              sum = static_cast<Real>(total(r, c)) + static_cast<Real>(sum);
            }
          round_all(storage_, rounded);
        } else {
          rounded.assign(sums.begin(), sums.end());
        }
        RowMajorMatrix<double>& target = whole || part.closes ? total_ : open_;
        for (Index r = 0; r < rows; ++r)
          std::copy_n(rounded.data() + r * width, width, target.row(row + r).data() + col);
      }
    }
    for (Index r = 0; r < rows; ++r)  // 0 · NaN of a poisoned input is not 0
      if (rows_[static_cast<std::size_t>(row + r)] >= vocab) total_.row(row + r).setZero();
  });
  done_ += count;
}

template std::vector<float> decode_rows<float>(const MatrixView&, std::span<const Index>);
template std::vector<double> decode_rows<double>(const MatrixView&, std::span<const Index>);
template std::vector<float> logit_products<float>(const MatrixView&, std::span<const Index>,
                                                  const MatrixView&, Index);
template std::vector<double> logit_products<double>(const MatrixView&, std::span<const Index>,
                                                    const MatrixView&, Index);
template void input_gradient<float>(std::span<const float>, std::span<const InputGradientRow>, Index,
                                    const MatrixView&);
template void input_gradient<double>(std::span<const double>, std::span<const InputGradientRow>, Index,
                                     const MatrixView&);
template void TokenSum::add<float>(Index, std::span<const float>, Index, std::span<const float>);
template void TokenSum::add<double>(Index, std::span<const double>, Index, std::span<const double>);

}  // namespace fljsd
