// SPDX-License-Identifier: Apache-2.0
#include "verify/cases/file_parts.h"

#include <algorithm>

#include <fmt/format.h>

namespace fljsd {

void refuse_file(const std::string& origin, const std::string& sentence) {
  throw FileError(origin + ": " + sentence);
}

std::string in_quotes(const std::string& text) {
  constexpr std::size_t longest = 100;
  std::size_t length = std::min(text.size(), longest);
  // Not in the middle of a UTF-8 character.
  while (length < text.size() && length > 0 && (text[length] & 0xc0) == 0x80) --length;
  std::string shown = "'";
  for (char c : text.substr(0, length)) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    shown += control ? fmt::format("\\x{:02x}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return shown + (length < text.size() ? "…'" : "'");
}

void refuse_other_tensors(const SafetensorsFile& file, std::initializer_list<const char*> allowed,
                          const std::string& kind, const std::string& origin) {
  for (const auto& [name, tensor] : file.tensors) {
    if (std::find(allowed.begin(), allowed.end(), name) != allowed.end()) continue;
    std::string list;
    for (const char* other : allowed) list += (list.empty() ? "" : ", ") + std::string(other);
    refuse_file(origin,
                fmt::format("the tensor {} is not part of {}; allowed are {}.", in_quotes(name), kind, list));
  }
}

std::optional<Tensor> float_tensor(const SafetensorsFile& file, const std::string& name, std::size_t rank,
                                   const std::string& origin) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end()) return std::nullopt;
  const FileTensor& tensor = found->second;
  if (!tensor.dtype)
    refuse_file(origin, fmt::format("{} has dtype I64, but it must be BF16, F16, F32 or F64.", name));
  if (tensor.shape.size() != rank) {
    refuse_file(origin, fmt::format("{} has shape {}, but it must have {} dimension{}.", name,
                                    shape_text(tensor.shape), rank, rank == 1 ? "" : "s"));
  }
  return Tensor{*tensor.dtype, tensor.shape, tensor.data};
}

FileTensor file_tensor(const Tensor& tensor) {
  return {tensor.dtype, tensor.shape, tensor.data};
}

}  // namespace fljsd
