// SPDX-License-Identifier: Apache-2.0
// Exact transformations of cases: what comes out is the number intended, bit for bit, or nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "verify/cases/case.h"

namespace fljsd {

using Indices = std::vector<Index>;

// 0, 1, ..., count − 1.
Indices identity(Index count);
// A random order of 0 .. count − 1; of two or more, never the identity.
Indices permutation(Index count, std::uint64_t seed);

// Rows (entries of a vector) in the order given; they may repeat.
Tensor take_rows(const Tensor& tensor, const Indices& rows);
Tensor take_cols(const Tensor& matrix, const Indices& cols);
// The tensor with `rows` rows more, all elements `value`.
Tensor append_rows(const Tensor& tensor, Index rows, double value);

// Row-major elements, decoded.
std::vector<double> elements(const Tensor& tensor);
// Whether all elements are finite.
bool all_finite(const Tensor& tensor);

// The tensor in another dtype, if each element keeps its value.
std::optional<Tensor> with_dtype(const Tensor& tensor, DType dtype);
// Each element times `factor`, in the first of the tensor's own dtype, f32 and f64 that holds every product
// exactly.
std::optional<Tensor> multiplied(const Tensor& tensor, double factor);
// Each element plus `term`, likewise. Infinities and NaN stay what they are.
std::optional<Tensor> shifted(const Tensor& tensor, double term);

// The case with these tokens only, in this order, their labels with them.
Case with_tokens(const Case& c, const Indices& tokens);
// The case with these vocabulary entries only, in this order; all of them valid.
Case with_vocab(const Case& c, const Indices& entries);
// The case without what lies past valid_vocab.
Case with_valid_vocab_only(const Case& c);
// The hidden columns of each model in another order.
Case with_hidden(const Case& c, const Indices& student, const Indices& teacher);
// Student and teacher exchanged; the options stay.
Case with_models_swapped(const Case& c);
// The teacher's tensors overwritten by the student's.
Case with_equal_models(const Case& c);

// The case with `beta`, all else the same.
Case with_beta(Case c, double beta);
Case with_reduction(Case c, Reduction reduction);

}  // namespace fljsd
