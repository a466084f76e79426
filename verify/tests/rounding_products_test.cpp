// SPDX-License-Identifier: Apache-2.0
// The products behind the rounding models do exactly the operations that they promise, in the order stated.
#include "reference/rounding/products.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "reference/rounding/ordered_product.h"
#include "reference/rounding/row.h"

namespace fljsd {
namespace {

constexpr DType dtypes[] = {DType::bf16, DType::f16, DType::f32, DType::f64};

// Values of very different size, so that every change of the order of summation changes bits.
template <class Real>
std::vector<Real> random_values(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<Real> values(count);
  for (Real& value : values) {
    const double significand = static_cast<double>(engine() >> 11) * 0x1p-52 - 1;
    value = static_cast<Real>(std::ldexp(significand, static_cast<int>(engine() % 12)));
  }
  return values;
}

// Bitwise, so that −0 is not 0 and NaN is NaN.
template <class Container>
bool same_bits(const Container& a, const Container& b) {
  if (a.size() != b.size()) return false;
  return a.empty() ||
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * sizeof(*a.data())) == 0;
}

// A matrix in a given format that owns its bytes, one byte off any alignment, rows further apart than needed.
struct Stored {
  Stored(DType dtype, Index rows, Index cols, std::uint64_t seed)
      : bytes(static_cast<std::size_t>(rows * (cols + 3)) * size_of(dtype) + 1) {
    const auto values = random_values<double>(static_cast<std::size_t>(rows * (cols + 3)), seed);
    store_run(dtype, bytes.data() + 1, 0, static_cast<Index>(values.size()), values.data());
    view = {dtype, bytes.data() + 1, rows, cols, cols + 3};
  }
  std::vector<std::byte> bytes;
  MatrixView view;
};

std::vector<Index> all_indices(Index count) {
  std::vector<Index> indices(static_cast<std::size_t>(count));
  for (Index i = 0; i < count; ++i) indices[static_cast<std::size_t>(i)] = i;
  return indices;
}

template <class Real>
std::vector<Real> naive_product(Index rows, Index depth, Index cols, const std::vector<Real>& a,
                                const std::vector<Real>& b, std::vector<Real> c) {
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j)
      for (Index k = 0; k < depth; ++k) {
        Real& sum = c[static_cast<std::size_t>(i * cols + j)];
        sum = std::fma(a[static_cast<std::size_t>(i * depth + k)], b[static_cast<std::size_t>(k * cols + j)],
                       sum);
      }
  return c;
}

template <class Real>
void check_ordered_product() {
  const Index rows = *rc::gen::resize(100, rc::gen::inRange<Index>(0, 20));
  const Index depth = *rc::gen::resize(100, rc::gen::inRange<Index>(0, 70));
  const Index cols = *rc::gen::resize(100, rc::gen::inRange<Index>(0, 100));
  const Index cut = *rc::gen::resize(100, rc::gen::inRange<Index>(0, depth + 1));
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto a = random_values<Real>(static_cast<std::size_t>(rows * depth), seed);
  const auto b = random_values<Real>(static_cast<std::size_t>(depth * cols), seed + 1);
  const auto c = random_values<Real>(static_cast<std::size_t>(rows * cols), seed + 2);
  const auto expected = naive_product(rows, depth, cols, a, b, c);

  std::vector<Real> whole = c;
  add_ordered_product<Real>(rows, depth, cols, a.data(), depth, b.data(), cols, whole.data(), cols);
  RC_ASSERT(same_bits(whole, expected));

  std::vector<Real> in_two = c;
  add_ordered_product<Real>(rows, cut, cols, a.data(), depth, b.data(), cols, in_two.data(), cols);
  add_ordered_product<Real>(rows, depth - cut, cols, a.data() + cut, depth, b.data() + cut * cols, cols,
                            in_two.data(), cols);
  RC_ASSERT(same_bits(in_two, expected));
}

// Fault: a sum split over vector lanes, a product rounded before it is added, a padded panel that leaks, or a
// depth that may not be cut.
RC_GTEST_PROP(OrderedProduct, IsTheNaiveLoopBitForBitInFloat, ()) {
  check_ordered_product<float>();
}
RC_GTEST_PROP(OrderedProduct, IsTheNaiveLoopBitForBitInDouble, ()) {
  check_ordered_product<double>();
}

// Fault: a padded last panel written back at its padded width.
TEST(OrderedProduct, LeavesWhatLiesBetweenRowsAlone) {
  constexpr Index rows = 7, depth = 5, cols = 33, stride = 40;
  const auto a = random_values<float>(rows * depth, 1), b = random_values<float>(depth * stride, 2);
  std::vector<float> c(rows * stride, 123.0f);
  add_ordered_product<float>(rows, depth, cols, a.data(), depth, b.data(), stride, c.data(), stride);
  for (Index i = 0; i < rows; ++i)
    for (Index j = cols; j < stride; ++j) EXPECT_EQ(c[static_cast<std::size_t>(i * stride + j)], 123.0f);
}

// Fault: an order that is not sequential. 2^24 + 1 is 2^24 in fp32, so 1 + 1 + ... first or last differ.
TEST(OrderedProduct, AddsInAscendingOrder) {
  std::vector<float> a(65, 1.0f), b(65, 1.0f), c(1, 0.0f);
  a[0] = 0x1p24f;
  add_ordered_product<float>(1, 65, 1, a.data(), 65, b.data(), 1, c.data(), 1);
  EXPECT_EQ(c[0], 0x1p24f);
  std::swap(a[0], a[64]);
  c[0] = 0;
  add_ordered_product<float>(1, 65, 1, a.data(), 65, b.data(), 1, c.data(), 1);
  EXPECT_EQ(c[0], 0x1p24f + 64);
}

template <class Real>
void check_logit_products(DType dtype, Index tokens, Index hidden, Index vocab, Index valid) {
  const Stored input(dtype, tokens, hidden, 3), weight(dtype, vocab, hidden, 4);
  std::vector<Index> sample;
  for (Index t = tokens - 1; t >= 0; t -= 2) sample.push_back(t);
  const std::vector<Real> products = logit_products<Real>(input.view, sample, weight.view, valid);
  ASSERT_EQ(products.size(), sample.size() * static_cast<std::size_t>(valid));
  for (std::size_t i = 0; i < sample.size(); ++i)
    for (Index v = 0; v < valid; ++v) {
      Real sum = 0;
      for (Index k = 0; k < hidden; ++k) {
        sum =
            std::fma(static_cast<Real>(weight.view(v, k)), static_cast<Real>(input.view(sample[i], k)), sum);
      }
      ASSERT_EQ(products[i * static_cast<std::size_t>(valid) + static_cast<std::size_t>(v)], sum)
          << name(dtype) << " token " << sample[i] << " vocab " << v;
    }
}

// Fault: a tile or piece boundary that drops, repeats or reorders terms; operands wider than Real not rounded
// first; padded columns of the vocabulary read. Sizes lie on both sides of the tiles (96, 256, 8·96).
TEST(LogitProducts, AreSequentialSumsForAnyTile) {
  for (DType dtype : dtypes) {
    check_logit_products<float>(dtype, 5, 259, 800, 780);
    check_logit_products<double>(dtype, 5, 259, 800, 780);
  }
  for (Index hidden : {1, 255, 256, 257}) check_logit_products<float>(DType::bf16, 3, hidden, 97, 97);
  for (Index vocab : {1, 95, 96, 768, 769}) check_logit_products<float>(DType::bf16, 71, 9, vocab, vocab);
}

// Fault: the same in the product over the vocabulary, or rows written to the wrong token.
TEST(InputGradient, IsASequentialSumOverTheVocabulary) {
  constexpr Index tokens = 6, vocab = 203, hidden = 261;
  const Stored weight(DType::bf16, vocab + 5, hidden, 5);
  const std::vector<Index> sample = {4, 0, 3};
  const auto dlogits = random_values<float>(3 * vocab, 6);
  RowMajorMatrix<double> gradient = RowMajorMatrix<double>::Constant(tokens, hidden, 7.0);
  std::vector<InputGradientRow> rows;
  for (const Index token : sample) rows.push_back({&gradient, token});
  input_gradient<float>(dlogits, rows, vocab, weight.view);
  for (Index t = 0; t < tokens; ++t) {
    const auto found = std::find(sample.begin(), sample.end(), t);
    for (Index h = 0; h < hidden; ++h) {
      float sum = 0;
      if (found == sample.end()) {
        sum = 7;
      } else {
        for (Index v = 0; v < vocab; ++v) {
          sum = std::fma(dlogits[static_cast<std::size_t>((found - sample.begin()) * vocab + v)],
                         static_cast<float>(weight.view(v, h)), sum);
        }
      }
      ASSERT_EQ(gradient(t, h), sum);
    }
  }
}

// One row, one column: what happens to a single element of the gradient.
double sum_of_ones(Index tokens, Index chunk, DType storage) {
  TokenSum sum({0}, 1, all_indices(tokens), chunk, storage);
  const std::vector<float> ones(static_cast<std::size_t>(tokens), 1.0f);
  sum.add<float>(tokens, ones, 1, ones);
  return sum.total()(0, 0);
}

// Fault: a weight gradient said to be kept in bf16 over chunks that in truth is summed in fp32, or the
// reverse. 256 + 1 is a tie in bf16 and rounds to the even 256; 256 + 2 = 258 is representable, so pairs go
// on to 512.
TEST(TokenSum, StallsInBf16AsRealAccumulatorsDo) {
  EXPECT_EQ(sum_of_ones(512, 1, DType::bf16), 256);
  EXPECT_EQ(sum_of_ones(512, 2, DType::bf16), 512);
  EXPECT_EQ(sum_of_ones(1024, 2, DType::bf16), 512);
  EXPECT_EQ(sum_of_ones(512, 0, DType::bf16), 512);
  EXPECT_EQ(sum_of_ones(512, 1, DType::f32), 512);
  EXPECT_EQ(sum_of_ones(4096, 1, DType::f16), 2048);
}

// Element (row, col) of a TokenSum, operation by operation.
double expected_sum(Index v, Index c, const std::vector<Index>& tokens, Index chunk, DType storage,
                    Index vocab, Index cols, const std::vector<float>& dlogits,
                    const std::vector<float>& right) {
  const auto term = [&](std::size_t i, float sum) {
    return std::fma(dlogits[i * static_cast<std::size_t>(vocab) + static_cast<std::size_t>(v)],
                    right[i * static_cast<std::size_t>(cols) + static_cast<std::size_t>(c)], sum);
  };
  float total = 0;
  for (std::size_t i = 0; i < tokens.size();) {
    if (chunk == 0) {
      total = term(i, total);
      ++i;
      continue;
    }
    const Index current = tokens[i] / chunk;
    float sum = 0;
    for (; i < tokens.size() && tokens[i] / chunk == current; ++i) sum = term(i, sum);
    const float added = total + static_cast<float>(round_to(storage, sum));
    total = static_cast<float>(round_to(storage, added));
  }
  return total;
}

// Fault: results that depend on how tokens arrive in blocks; a chunk closed at a block's end, or not closed;
// chunks counted over the tokens that are left instead of over the batch; rows past the vocabulary.
RC_GTEST_PROP(TokenSum, DependsOnChunksAndNotOnBlocks, ()) {
  const Index batch = *rc::gen::resize(100, rc::gen::inRange<Index>(1, 40));
  const Index chunk = *rc::gen::elementOf(std::vector<Index>{0, 1, 2, 4, 8, 64});
  const DType storage = *rc::gen::elementOf(std::vector<DType>{DType::bf16, DType::f16, DType::f32});
  const Index vocab = *rc::gen::elementOf(std::vector<Index>{1, 5, 97});
  const Index cols = *rc::gen::elementOf(std::vector<Index>{1, 3, 257});
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  std::mt19937_64 engine(seed);
  std::vector<Index> tokens;
  for (Index t = 0; t < batch; ++t)
    if (engine() % 4 != 0) tokens.push_back(t);
  const std::vector<Index> rows = {vocab - 1, 0, vocab, vocab / 2};
  const auto dlogits = random_values<float>(tokens.size() * static_cast<std::size_t>(vocab), seed);
  const auto right = random_values<float>(tokens.size() * static_cast<std::size_t>(cols), seed + 1);

  TokenSum sum(rows, cols, tokens, chunk, storage);
  for (std::size_t first = 0; first < tokens.size();) {
    const std::size_t count = std::min<std::size_t>(1 + engine() % 9, tokens.size() - first);
    sum.add<float>(static_cast<Index>(count),
                   std::span(dlogits).subspan(first * static_cast<std::size_t>(vocab),
                                              count * static_cast<std::size_t>(vocab)),
                   vocab,
                   std::span(right).subspan(first * static_cast<std::size_t>(cols),
                                            count * static_cast<std::size_t>(cols)));
    first += count;
  }
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (Index c = 0; c < cols; ++c) {
      const double expected =
          rows[r] < vocab ? expected_sum(rows[r], c, tokens, chunk, storage, vocab, cols, dlogits, right) : 0;
      const double computed = sum.total()(static_cast<Index>(r), c);
      // f16 may overflow, and infinities of both signs then give NaN.
      RC_ASSERT(computed == expected || (std::isnan(computed) && std::isnan(expected)));
    }
}

// Fault: 0 · NaN in the rows of padded vocabulary.
TEST(TokenSum, KeepsRowsPastTheVocabularyAtZero) {
  for (Index chunk : {0, 1, 2}) {
    TokenSum sum({1, 0}, 2, all_indices(2), chunk, DType::bf16);
    const std::vector<float> dlogits = {1, 1}, poisoned(4, std::numeric_limits<float>::quiet_NaN());
    sum.add<float>(2, dlogits, 1, poisoned);
    EXPECT_EQ(sum.total()(0, 0), 0);
    EXPECT_TRUE(std::isnan(sum.total()(1, 0)));
  }
}

// Fault: rounding twice, flushing subnormals, saturating instead of overflowing, losing NaN.
TEST(RoundAll, IsRoundToForEveryValue) {
  std::mt19937_64 engine(11);
  for (DType dtype : dtypes) {
    std::vector<double> values(3000);
    for (double& value : values) value = std::bit_cast<double>(engine());
    for (std::size_t i = 0; i < values.size() / 2; ++i)  // where the formats live, ties included
      values[i] = std::ldexp(static_cast<double>(engine() % 4096), static_cast<int>(engine() % 300) - 160);
    std::vector<double> rounded = values;
    round_all(dtype, rounded);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double expected = round_to(dtype, values[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(rounded[i]));
      } else {
        ASSERT_EQ(rounded[i], expected) << name(dtype) << " of " << values[i];
        ASSERT_EQ(std::signbit(rounded[i]), std::signbit(expected));
      }
    }
  }
}

}  // namespace
}  // namespace fljsd
