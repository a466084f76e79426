// SPDX-License-Identifier: Apache-2.0
// Matrix products whose order of summation is stated, so that every bit of them is.
#pragma once

#include "reference/dtype.h"

namespace fljsd {

// c += a · b for row-major a [rows, depth], b [depth, cols], c [rows, cols]; strides are in elements. Every
// element of c is updated by one fused multiply-add for each k, k ascending from 0 to depth − 1:
//
//   c[i][j] = fma(a[i][k], b[k][j], c[i][j])
//
// Elements of c do not depend on each other, so vector width, tiling of rows and columns, and cutting depth
// into consecutive calls leave every bit as it is. Real = float or double.
//
// This is not the order of a GPU. There each tensor-core instruction adds a block of products to the
// accumulator at once, aligned to the largest exponent among them and truncated, and long sums may be split.
template <class Real>
void add_ordered_product(Index rows, Index depth, Index cols, const Real* a, Index a_stride, const Real* b,
                         Index b_stride, Real* c, Index c_stride);

}  // namespace fljsd
