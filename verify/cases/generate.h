// SPDX-License-Identifier: Apache-2.0
// Tensors from functions of the index.
#pragma once

#include <functional>
#include <vector>

#include "verify/cases/case.h"

namespace fljsd {

// Writes row `row` of a matrix into out[0 .. cols). Called from several threads, once for each row asked for.
using RowFunction = std::function<void(Index row, double* out)>;
using ElementFunction = std::function<double(Index i)>;

// A [rows.size(), cols] tensor that holds the rows of these numbers, each element rounded once to `dtype`.
Tensor generate_rows(DType dtype, const std::vector<Index>& rows, Index cols, const RowFunction& row);

// A [rows, cols] tensor of rows 0 .. rows − 1. Memory: the tensor and one row for each thread.
Tensor generate_matrix(DType dtype, Index rows, Index cols, const RowFunction& row);

// A [size] tensor.
Tensor generate_vector(DType dtype, Index size, const ElementFunction& element);

}  // namespace fljsd
