// SPDX-License-Identifier: Apache-2.0
#include "verify/cases/generate.h"

#include <algorithm>
#include <memory>

#include "reference/parallel.h"

namespace fljsd {
namespace {

// number(i) is the number of the row that becomes row i of the tensor.
template <class Number>
Tensor generate(DType dtype, Index rows, Index cols, const RowFunction& row, const Number& number) {
  Tensor tensor{dtype, {rows, cols}, nullptr};
  // Not initialised, because all of it is written below; at least one byte, so that an empty tensor still has
  // an address.
  const auto bytes = std::make_shared_for_overwrite<std::byte[]>(tensor.bytes() + 1);
  // Enough rows in a piece that handing it out costs nothing beside filling it.
  const Index block = std::max<Index>(1, (Index{1} << 16) / std::max<Index>(1, cols));
  parallel_for((rows + block - 1) / block, [&](Index piece) {
    std::vector<double> values(static_cast<std::size_t>(cols));
    const Index end = std::min(rows, (piece + 1) * block);
    for (Index i = piece * block; i < end; ++i) {
      row(number(i), values.data());
      store_run(dtype, bytes.get(), i * cols, cols, values.data());
    }
  });
  tensor.data = std::shared_ptr<const std::byte>(bytes, bytes.get());
  return tensor;
}

}  // namespace

Tensor generate_rows(DType dtype, const std::vector<Index>& rows, Index cols, const RowFunction& row) {
  return generate(dtype, static_cast<Index>(rows.size()), cols, row,
                  [&](Index i) { return rows[static_cast<std::size_t>(i)]; });
}

Tensor generate_matrix(DType dtype, Index rows, Index cols, const RowFunction& row) {
  return generate(dtype, rows, cols, row, [](Index i) { return i; });
}

Tensor generate_vector(DType dtype, Index size, const ElementFunction& element) {
  Tensor tensor = generate_matrix(dtype, size, 1, [&](Index i, double* out) { *out = element(i); });
  tensor.shape = {size};
  return tensor;
}

}  // namespace fljsd
