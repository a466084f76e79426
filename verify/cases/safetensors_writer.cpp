// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "verify/cases/file_io.h"
#include "verify/cases/file_parts.h"
#include "verify/cases/safetensors_header.h"

namespace fljsd {
namespace {

const char* format_name(std::optional<DType> dtype) {
  return std::find_if(std::begin(format_dtypes), std::end(format_dtypes),
                      [&](const FormatDType& d) { return d.dtype == dtype; })
      ->name;
}

// The file's beginning, padded with spaces so that the data start at a multiple of 8, and the tensors in the
// order of their data.
struct Plan {
  std::string head;
  std::vector<std::span<const std::byte>> pieces;
};

Plan plan(const SafetensorsFile& file, const std::string& origin) {
  // Falling element size keeps every tensor aligned; map order has made the names ascend.
  std::vector<std::pair<const std::string*, const FileTensor*>> order;
  for (const auto& [name, tensor] : file.tensors) order.emplace_back(&name, &tensor);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return format_element_bytes(a.second->dtype) > format_element_bytes(b.second->dtype);
  });

  Plan result;
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!file.metadata.empty()) header[format_metadata_key] = file.metadata;
  std::size_t begin = 0;
  for (const auto& [name, tensor] : order) {
    if (*name == format_metadata_key)
      refuse_file(origin, fmt::format("a tensor is named {}, but that name stands for the metadata.",
                                      format_metadata_key));
    std::size_t bytes = format_element_bytes(tensor->dtype);
    for (Index size : tensor->shape) bytes *= static_cast<std::size_t>(size);
    header[*name] = {{"dtype", format_name(tensor->dtype)},
                     {"shape", tensor->shape},
                     {"data_offsets", {begin, begin + bytes}}};
    result.pieces.emplace_back(tensor->data.get(), bytes);
    begin += bytes;
  }

  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    refuse_file(origin, "a tensor name or metadata text is not UTF-8, but a safetensors header must be.");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > format_max_header_bytes)
    refuse_file(origin, fmt::format("the header would have {} bytes, but it must have at most {}.",
                                    text.size(), format_max_header_bytes));
  const std::uint64_t length = text.size();
  result.head.assign(reinterpret_cast<const char*>(&length), format_length_bytes);
  result.head += text;
  return result;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const SafetensorsFile& file) {
  const Plan planned = plan(file, path.string());
  ReplacementFile replacement(path);
  replacement.write(std::as_bytes(std::span(planned.head)));
  for (std::span<const std::byte> bytes : planned.pieces) replacement.write(bytes);
  replacement.commit();
}

std::vector<std::byte> serialise_safetensors(const SafetensorsFile& file) {
  const Plan planned = plan(file, "safetensors bytes");
  const auto head = std::as_bytes(std::span(planned.head));
  std::vector<std::byte> result(head.begin(), head.end());
  for (std::span<const std::byte> bytes : planned.pieces)
    result.insert(result.end(), bytes.begin(), bytes.end());
  return result;
}

}  // namespace fljsd
