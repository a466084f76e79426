// SPDX-License-Identifier: Apache-2.0
#include "verify/fuzz/case_copy.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "verify/cases/random.h"

namespace fljsd {
namespace {

Tensor copy_of(const Tensor& tensor) {
  Tensor copy = tensor;
  const std::size_t size = tensor.bytes();
  // One byte for an empty tensor, so that it has an address.
  const std::shared_ptr<std::byte[]> bytes(new std::byte[size == 0 ? 1 : size]);
  if (size != 0) std::memcpy(bytes.get(), tensor.data.get(), size);
  copy.data = std::shared_ptr<const std::byte>(bytes, bytes.get());
  return copy;
}

// Words are mixed one after the other, each as splitmix64 does.
class Hash {
 public:
  void add(std::uint64_t word) { state_ = splitmix64(state_ ^ word, 0); }
  void add(const void* data, std::size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (; size >= 8; size -= 8, bytes += 8) {
      std::uint64_t word;
      std::memcpy(&word, bytes, 8);
      add(word);
    }
    std::uint64_t rest = 0;
    if (size > 0) std::memcpy(&rest, bytes, size);
    add(rest);
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0;
};

}  // namespace

Case deep_copy(const Case& c) {
  Case copy = c;
  for (Tensor* tensor :
       {&copy.student_input, &copy.student_weight, &copy.teacher_input, &copy.teacher_weight})
    *tensor = copy_of(*tensor);
  for (std::optional<Tensor>* bias : {&copy.student_bias, &copy.teacher_bias})
    if (*bias) *bias = copy_of(**bias);
  return copy;
}

std::optional<std::string> first_difference(const Problem& a, const Problem& b) {
  const auto same = [](DType dtype, const void* x, Index first_x, const void* y, Index first_y, Index count) {
    const std::size_t size = size_of(dtype);
    return count == 0 ||
           std::memcmp(static_cast<const std::byte*>(x) + static_cast<std::size_t>(first_x) * size,
                       static_cast<const std::byte*>(y) + static_cast<std::size_t>(first_y) * size,
                       static_cast<std::size_t>(count) * size) == 0;
  };
  const std::pair<const char*, MatrixView Problem::*> matrices[] = {
      {"student_input", &Problem::student_input},
      {"student_weight", &Problem::student_weight},
      {"teacher_input", &Problem::teacher_input},
      {"teacher_weight", &Problem::teacher_weight}};
  for (const auto& [name, member] : matrices) {
    const MatrixView &x = a.*member, &y = b.*member;
    for (Index r = 0; r < x.rows; ++r)
      if (!same(x.dtype, x.data, r * x.row_stride, y.data, r * y.row_stride, x.cols)) return name;
  }
  const std::pair<const char*, std::optional<VectorView> Problem::*> biases[] = {
      {"student_bias", &Problem::student_bias}, {"teacher_bias", &Problem::teacher_bias}};
  for (const auto& [name, member] : biases)
    if (const auto& x = a.*member, &y = b.*member; x && !same(x->dtype, x->data, 0, y->data, 0, x->size))
      return name;
  if (a.labels && !std::equal(a.labels->begin(), a.labels->end(), b.labels->begin())) return "labels";
  return std::nullopt;
}

std::uint64_t fingerprint(const Case& c) {
  Hash hash;
  for (const Tensor* tensor :
       {&c.student_input, &c.student_weight, &c.teacher_input, &c.teacher_weight,
        c.student_bias ? &*c.student_bias : nullptr, c.teacher_bias ? &*c.teacher_bias : nullptr}) {
    if (tensor == nullptr) {
      hash.add(0);
      continue;
    }
    hash.add(1 + static_cast<std::uint64_t>(tensor->dtype));
    for (const Index size : tensor->shape) hash.add(static_cast<std::uint64_t>(size));
    hash.add(tensor->data.get(), tensor->bytes());
  }
  hash.add(c.labels ? 1 : 0);
  if (c.labels) hash.add(c.labels->data(), c.labels->size() * sizeof(std::int64_t));
  hash.add(std::bit_cast<std::uint64_t>(c.options.beta));
  hash.add(std::bit_cast<std::uint64_t>(c.options.temperature));
  hash.add(static_cast<std::uint64_t>(c.options.reduction));
  hash.add(static_cast<std::uint64_t>(c.options.ignore_index));
  hash.add(static_cast<std::uint64_t>(c.options.valid_vocab.value_or(-1)));
  return hash.value();
}

}  // namespace fljsd
