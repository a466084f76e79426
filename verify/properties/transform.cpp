// SPDX-License-Identifier: Apache-2.0
#include "verify/properties/transform.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "verify/cases/random.h"

namespace fljsd {
namespace {

// Same value: NaN is the same as NaN, and zeros of either sign are the same.
bool same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

// The tensor with its elements replaced by `exact` ones, in `dtype`, if that holds them.
std::optional<Tensor> stored_exactly(DType dtype, const std::vector<Index>& shape,
                                     const std::vector<double>& exact) {
  Tensor tensor = make_tensor(dtype, shape, exact);
  for (std::size_t i = 0; i < exact.size(); ++i)
    if (!same(load(dtype, tensor.data.get(), static_cast<Index>(i)), exact[i])) return std::nullopt;
  return tensor;
}

std::optional<Tensor> in_first_dtype_that_holds(const Tensor& tensor, const std::vector<double>& exact) {
  for (const DType dtype : {tensor.dtype, DType::f32, DType::f64})
    if (auto found = stored_exactly(dtype, tensor.shape, exact)) return found;
  return std::nullopt;
}

Index row_elements(const Tensor& tensor) {
  return std::accumulate(tensor.shape.begin() + 1, tensor.shape.end(), Index{1}, std::multiplies<>());
}

}  // namespace

Indices identity(Index count) {
  Indices indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), Index{0});
  return indices;
}

Indices permutation(Index count, std::uint64_t seed) {
  const Random random(seed, 0x7065726d757465);
  Indices order = identity(count);
  for (Index i = count - 1; i > 0; --i)
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(random.below(i, i + 1))]);
  if (count >= 2 && order == identity(count)) std::rotate(order.begin(), order.begin() + 1, order.end());
  return order;
}

Tensor take_rows(const Tensor& tensor, const Indices& rows) {
  Tensor taken = tensor;
  taken.shape[0] = static_cast<Index>(rows.size());
  const std::size_t row_bytes = static_cast<std::size_t>(row_elements(tensor)) * size_of(tensor.dtype);
  auto bytes = std::make_shared<std::vector<std::byte>>(rows.size() * row_bytes + 1);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::memcpy(bytes->data() + r * row_bytes,
                tensor.data.get() + static_cast<std::size_t>(rows[r]) * row_bytes, row_bytes);
  }
  taken.data = std::shared_ptr<const std::byte>(bytes, bytes->data());
  return taken;
}

Tensor take_cols(const Tensor& matrix, const Indices& cols) {
  const MatrixView view = matrix.matrix();
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(view.rows) * cols.size());
  for (Index r = 0; r < view.rows; ++r)
    for (const Index c : cols) values.push_back(view(r, c));
  return make_tensor(matrix.dtype, {view.rows, static_cast<Index>(cols.size())}, values);
}

Tensor append_rows(const Tensor& tensor, Index rows, double value) {
  std::vector<double> values = elements(tensor);
  values.resize(values.size() + static_cast<std::size_t>(rows * row_elements(tensor)), value);
  std::vector<Index> shape = tensor.shape;
  shape[0] += rows;
  return make_tensor(tensor.dtype, shape, values);
}

std::vector<double> elements(const Tensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  load_run(tensor.dtype, tensor.data.get(), 0, tensor.elements(), values.data());
  return values;
}

bool all_finite(const Tensor& tensor) {
  const std::vector<double> values = elements(tensor);
  return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
}

std::optional<Tensor> with_dtype(const Tensor& tensor, DType dtype) {
  return stored_exactly(dtype, tensor.shape, elements(tensor));
}

std::optional<Tensor> multiplied(const Tensor& tensor, double factor) {
  std::vector<double> values = elements(tensor);
  for (double& x : values) {
    const double product = x * factor;
    // The residual shows what rounding lost; an underflowing product may hide its own.
    if (std::isfinite(x) && (!std::isfinite(product) || std::fma(x, factor, -product) != 0 ||
                             (x != 0 && std::abs(product) < 0x1p-900)))
      return std::nullopt;
    x = product;
  }
  return in_first_dtype_that_holds(tensor, values);
}

std::optional<Tensor> shifted(const Tensor& tensor, double term) {
  std::vector<double> values = elements(tensor);
  for (double& x : values) {
    const double sum = x + term;
    // Fast2Sum: smaller − (sum − larger) is exactly what rounding lost.
    const double larger = std::abs(x) < std::abs(term) ? term : x;
    const double smaller = std::abs(x) < std::abs(term) ? x : term;
    if (std::isfinite(x) && !(smaller - (sum - larger) == 0)) return std::nullopt;
    x = sum;
  }
  return in_first_dtype_that_holds(tensor, values);
}

Case with_tokens(const Case& c, const Indices& tokens) {
  Case taken = c;
  taken.student_input = take_rows(c.student_input, tokens);
  taken.teacher_input = take_rows(c.teacher_input, tokens);
  if (c.labels) {
    taken.labels->clear();
    for (const Index t : tokens) taken.labels->push_back((*c.labels)[static_cast<std::size_t>(t)]);
  }
  return taken;
}

Case with_vocab(const Case& c, const Indices& entries) {
  Case taken = c;
  taken.student_weight = take_rows(c.student_weight, entries);
  taken.teacher_weight = take_rows(c.teacher_weight, entries);
  if (c.student_bias) taken.student_bias = take_rows(*c.student_bias, entries);
  if (c.teacher_bias) taken.teacher_bias = take_rows(*c.teacher_bias, entries);
  taken.options.valid_vocab.reset();
  return taken;
}

Case with_valid_vocab_only(const Case& c) {
  return with_vocab(c, identity(valid_vocab(c.problem(), c.options)));
}

Case with_hidden(const Case& c, const Indices& student, const Indices& teacher) {
  Case taken = c;
  taken.student_input = take_cols(c.student_input, student);
  taken.student_weight = take_cols(c.student_weight, student);
  taken.teacher_input = take_cols(c.teacher_input, teacher);
  taken.teacher_weight = take_cols(c.teacher_weight, teacher);
  return taken;
}

Case with_models_swapped(const Case& c) {
  Case swapped = c;
  std::swap(swapped.student_input, swapped.teacher_input);
  std::swap(swapped.student_weight, swapped.teacher_weight);
  std::swap(swapped.student_bias, swapped.teacher_bias);
  return swapped;
}

Case with_equal_models(const Case& c) {
  Case equal = c;
  equal.teacher_input = c.student_input;
  equal.teacher_weight = c.student_weight;
  equal.teacher_bias = c.student_bias;
  return equal;
}

Case with_beta(Case c, double beta) {
  c.options.beta = beta;
  return c;
}

Case with_reduction(Case c, Reduction reduction) {
  c.options.reduction = reduction;
  return c;
}

}  // namespace fljsd
