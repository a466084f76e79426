// SPDX-License-Identifier: Apache-2.0
#include "verify/cases/case.h"

#include <algorithm>
#include <stdexcept>

namespace fljsd {

std::string shape_text(const std::vector<Index>& shape) {
  constexpr std::size_t most = 8;
  std::string text = "[";
  for (std::size_t i = 0; i < std::min(shape.size(), most); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() > most ? ", …]" : "]");
}

Index Tensor::elements() const {
  Index product = 1;
  for (Index size : shape) product *= size;
  return product;
}

MatrixView Tensor::matrix() const {
  if (shape.size() != 2)
    throw std::invalid_argument("a matrix was expected, but the shape is " + shape_text(shape) + ".");
  return {dtype, data.get(), shape[0], shape[1], shape[1]};
}

VectorView Tensor::vector() const {
  if (shape.size() != 1)
    throw std::invalid_argument("a vector was expected, but the shape is " + shape_text(shape) + ".");
  return {dtype, data.get(), shape[0]};
}

Tensor make_tensor(DType dtype, std::vector<Index> shape, const std::vector<double>& values) {
  Tensor tensor{dtype, std::move(shape), nullptr};
  if (tensor.elements() != static_cast<Index>(values.size())) {
    throw std::invalid_argument("a tensor of shape " + shape_text(tensor.shape) + " was given " +
                                std::to_string(values.size()) + " values.");
  }
  // At least one byte, so that an empty tensor still has an address.
  auto bytes = std::make_shared<std::vector<std::byte>>(tensor.bytes() + 1);
  for (std::size_t i = 0; i < values.size(); ++i)
    store(dtype, bytes->data(), static_cast<Index>(i), values[i]);
  tensor.data = std::shared_ptr<const std::byte>(bytes, bytes->data());
  return tensor;
}

Problem Case::problem() const {
  Problem problem{student_input.matrix(),
                  student_weight.matrix(),
                  teacher_input.matrix(),
                  teacher_weight.matrix(),
                  std::nullopt,
                  std::nullopt,
                  std::nullopt};
  if (student_bias) problem.student_bias = student_bias->vector();
  if (teacher_bias) problem.teacher_bias = teacher_bias->vector();
  if (labels) problem.labels = std::span<const std::int64_t>(*labels);
  return problem;
}

}  // namespace fljsd
