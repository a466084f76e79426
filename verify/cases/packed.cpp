// SPDX-License-Identifier: Apache-2.0
#include "verify/cases/packed.h"

#include <cstdint>
#include <cstring>
#include <utility>

namespace fljsd {
namespace {

Tensor packed(DType dtype, std::vector<Index> shape, const void* data, Index rows, Index cols, Index stride) {
  Tensor tensor{dtype, std::move(shape), nullptr};
  const std::size_t row = static_cast<std::size_t>(cols) * size_of(dtype);
  // One byte more, so that an empty tensor has an address.
  const std::shared_ptr<std::byte[]> bytes(new std::byte[tensor.bytes() + 1]);
  for (Index r = 0; r < rows; ++r)
    std::memcpy(bytes.get() + static_cast<std::size_t>(r) * row,
                static_cast<const std::byte*>(data) + static_cast<std::size_t>(r * stride) * size_of(dtype),
                row);
  tensor.data = std::shared_ptr<const std::byte>(bytes, bytes.get());
  return tensor;
}

Tensor packed(const MatrixView& m) {
  return packed(m.dtype, {m.rows, m.cols}, m.data, m.rows, m.cols, m.row_stride);
}

std::optional<Tensor> packed(const std::optional<VectorView>& v) {
  return v ? std::optional(packed(v->dtype, {v->size}, v->data, 1, v->size, v->size)) : std::nullopt;
}

}  // namespace

Layout layout_of(const Problem& problem) {
  const MatrixView& weight = problem.student_weight;
  return {weight.row_stride - weight.cols, reinterpret_cast<std::uintptr_t>(weight.data) % 64};
}

Case packed(const Problem& problem, const Options& options) {
  Case c;
  c.student_input = packed(problem.student_input);
  c.student_weight = packed(problem.student_weight);
  c.teacher_input = packed(problem.teacher_input);
  c.teacher_weight = packed(problem.teacher_weight);
  c.student_bias = packed(problem.student_bias);
  c.teacher_bias = packed(problem.teacher_bias);
  if (problem.labels) c.labels.emplace(problem.labels->begin(), problem.labels->end());
  c.options = options;
  return c;
}

}  // namespace fljsd
