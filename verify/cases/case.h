// SPDX-License-Identifier: Apache-2.0
// A case: one concrete problem with its tensors, from a generator or a file.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reference/problem.h"

namespace fljsd {

// "[2, 3]", as sentences show a shape; a ninth dimension and those after it are only hinted at.
std::string shape_text(const std::vector<Index>& shape);

// An immutable tensor in row-major order. `data` owns the bytes or keeps the mapped file that holds them
// alive; copying a Tensor shares them.
struct Tensor {
  DType dtype = DType::f64;
  std::vector<Index> shape;
  std::shared_ptr<const std::byte> data;

  Index elements() const;
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype); }
  // Throws std::invalid_argument when the tensor does not have that rank.
  MatrixView matrix() const;
  VectorView vector() const;
};

// A tensor of `shape` whose elements are `values`, rounded once to `dtype`.
Tensor make_tensor(DType dtype, std::vector<Index> shape, const std::vector<double>& values);

struct Case {
  Tensor student_input, student_weight, teacher_input, teacher_weight;
  std::optional<Tensor> student_bias, teacher_bias;
  std::optional<std::vector<std::int64_t>> labels;
  Options options;
  // Where the case came from (family, seed, the command that made it): kept in files, never used in
  // computing.
  std::map<std::string, std::string> provenance;

  // Views into this case, valid while it lives.
  Problem problem() const;
};

}  // namespace fljsd
