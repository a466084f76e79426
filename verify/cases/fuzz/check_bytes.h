// SPDX-License-Identifier: Apache-2.0
// What must hold of any bytes whatsoever that are read as a file: shared by the fuzzer and the unit test that
// replays its corpus.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

#include "verify/cases/result.h"
#include "verify/cases/safetensors.h"

namespace fljsd {

// Whether both files hold the same metadata and, byte for byte, the same tensors.
inline bool same_file(const SafetensorsFile& a, const SafetensorsFile& b) {
  if (a.metadata != b.metadata || a.tensors.size() != b.tensors.size()) return false;
  for (const auto& [name, tensor] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end()) return false;
    if (tensor.dtype != other->second.dtype || tensor.shape != other->second.shape) return false;
    std::size_t bytes = tensor.dtype ? size_of(*tensor.dtype) : sizeof(std::int64_t);
    for (Index size : tensor.shape) bytes *= static_cast<std::size_t>(size);
    if (bytes > 0 && std::memcmp(tensor.data.get(), other->second.data.get(), bytes) != 0) return false;
  }
  return true;
}

// Runs `read`; true if it accepts. A refusal must be a FileError with one line of bounded length.
template <class Read>
bool accepts(const Read& read) {
  try {
    read();
    return true;
  } catch (const FileError& error) {
    const std::string sentence = error.what();
    if (sentence.empty() || sentence.size() > 1000 || sentence.find('\n') != std::string::npos ||
        sentence.back() != '.')
      throw std::logic_error("a refusal is not one sentence: " + sentence);
    return false;
  }
}

// Reads the bytes in every way there is. Throws std::logic_error when something is wrong with the reader: a
// refusal that is no sentence; a file that is accepted but does not survive being written and read again.
inline void check_bytes(std::span<const std::byte> bytes) {
  accepts([&] {
    const SafetensorsFile file = parse_safetensors(bytes, "input");
    const std::vector<std::byte> written = serialise_safetensors(file);
    if (!same_file(parse_safetensors(written, "written"), file))
      throw std::logic_error("a file changed by being written and read again");
  });
  accepts([&] {
    const Case c = parse_case(bytes, "input");
    validate(c.problem(), c.options);
    // Every element can be reached.
    for (const Tensor* tensor : {&c.student_input, &c.student_weight, &c.teacher_input, &c.teacher_weight})
      for (Index i = 0; i < tensor->elements(); ++i)
        static_cast<void>(load(tensor->dtype, tensor->data.get(), i));
    check_result_shapes(c, {});
  });
  accepts([&] { parse_result(bytes, "input"); });
}

}  // namespace fljsd
