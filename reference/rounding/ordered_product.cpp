// SPDX-License-Identifier: Apache-2.0
#include "reference/rounding/ordered_product.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace fljsd {
namespace {

// A block of c that fits in registers: 6 rows of 2 vectors are 12 independent chains of fma, enough to hide
// the latency of one. The width is a matter of speed alone.
constexpr int block_rows = 6;
#ifdef __AVX512F__
constexpr int vector_bytes = 64;
#else
constexpr int vector_bytes = 32;
#endif
template <class Real>
constexpr int block_cols = 2 * vector_bytes / int{sizeof(Real)};

template <class Real, int rows, int cols>
void add_block(Index depth, const Real* a, Index a_stride, const Real* b, Index b_stride, Real* c,
               Index c_stride) {
  Real sum[rows][cols];
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j) sum[i][j] = c[i * c_stride + j];
  for (Index k = 0; k < depth; ++k) {
    // Unrolled, so that `sum` lives in registers.
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const Real factor = a[i * a_stride + k];
      for (int j = 0; j < cols; ++j) sum[i][j] = std::fma(factor, b[k * b_stride + j], sum[i][j]);
    }
  }
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j) c[i * c_stride + j] = sum[i][j];
}

// `cols` columns of c, all rows.
template <class Real, int cols>
void add_panel(Index rows, Index depth, const Real* a, Index a_stride, const Real* b, Index b_stride, Real* c,
               Index c_stride) {
  Index i = 0;
  for (; i + block_rows <= rows; i += block_rows) {
    add_block<Real, block_rows, cols>(depth, a + i * a_stride, a_stride, b, b_stride, c + i * c_stride,
                                      c_stride);
  }
  for (; i < rows; ++i)
    add_block<Real, 1, cols>(depth, a + i * a_stride, a_stride, b, b_stride, c + i * c_stride, c_stride);
}

// Columns that do not fill a panel: the same on copies padded to one with zeros.
template <class Real, int cols>
void add_padded_panel(Index used, Index rows, Index depth, const Real* a, Index a_stride, const Real* b,
                      Index b_stride, Real* c, Index c_stride) {
  std::vector<Real> padded_b(static_cast<std::size_t>(depth * cols)),
      padded_c(static_cast<std::size_t>(rows * cols));
  for (Index k = 0; k < depth; ++k) std::copy_n(b + k * b_stride, used, padded_b.data() + k * cols);
  for (Index i = 0; i < rows; ++i) std::copy_n(c + i * c_stride, used, padded_c.data() + i * cols);
  add_panel<Real, cols>(rows, depth, a, a_stride, padded_b.data(), cols, padded_c.data(), cols);
  for (Index i = 0; i < rows; ++i) std::copy_n(padded_c.data() + i * cols, used, c + i * c_stride);
}

}  // namespace

template <class Real>
void add_ordered_product(Index rows, Index depth, Index cols, const Real* a, Index a_stride, const Real* b,
                         Index b_stride, Real* c, Index c_stride) {
  constexpr int full = block_cols<Real>;
  Index j = 0;
  for (; j + full <= cols; j += full)
    add_panel<Real, full>(rows, depth, a, a_stride, b + j, b_stride, c + j, c_stride);
  if (const Index rest = cols - j; rest > full / 2) {
    add_padded_panel<Real, full>(rest, rows, depth, a, a_stride, b + j, b_stride, c + j, c_stride);
  } else if (rest > 0) {
    add_padded_panel<Real, full / 2>(rest, rows, depth, a, a_stride, b + j, b_stride, c + j, c_stride);
  }
}

template void add_ordered_product(Index, Index, Index, const float*, Index, const float*, Index, float*,
                                  Index);
template void add_ordered_product(Index, Index, Index, const double*, Index, const double*, Index, double*,
                                  Index);

}  // namespace fljsd
