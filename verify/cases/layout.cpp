// SPDX-License-Identifier: Apache-2.0
#include "verify/cases/layout.h"

#include <cstring>
#include <limits>
#include <new>

namespace fljsd {

LaidOutCase::LaidOutCase(const Case& c, const Layout& layout) : layout_(layout), problem_(c.problem()) {
  for (MatrixView* m : {&problem_.student_input, &problem_.student_weight, &problem_.teacher_input,
                        &problem_.teacher_weight}) {
    const Index stride = m->cols + layout.row_padding;
    m->data = copy(m->dtype, m->data, m->rows, m->cols, stride);
    m->row_stride = stride;
  }
  for (std::optional<VectorView>* v : {&problem_.student_bias, &problem_.teacher_bias})
    if (*v) (*v)->data = copy((*v)->dtype, (*v)->data, 1, (*v)->size, (*v)->size);
}

// Packed rows, copied to the layout.
const void* LaidOutCase::copy(DType dtype, const void* data, Index rows, Index cols, Index row_stride) {
  constexpr std::align_val_t boundary{64};
  const std::size_t size = size_of(dtype);
  const auto elements = static_cast<std::size_t>(rows == 0 ? 0 : (rows - 1) * row_stride + cols);
  // The tensor ends where the allocation ends.
  void* memory = ::operator new(layout_.misalignment + elements * size, boundary);
  buffers_.emplace_back(static_cast<std::byte*>(memory),
                        [](std::byte* bytes) { ::operator delete(bytes, boundary); });
  // What stands before and between the rows is NaN, so that reading it shows, and in the same way each time.
  std::memset(memory, 0xff, layout_.misalignment);
  std::byte* out = buffers_.back().get() + layout_.misalignment;
  for (std::size_t i = 0; i < elements; ++i)
    store(dtype, out, static_cast<Index>(i), std::numeric_limits<double>::quiet_NaN());
  for (Index r = 0; r < rows; ++r) {
    std::memcpy(out + static_cast<std::size_t>(r * row_stride) * size,
                static_cast<const std::byte*>(data) + static_cast<std::size_t>(r * cols) * size,
                static_cast<std::size_t>(cols) * size);
  }
  return out;
}

}  // namespace fljsd
