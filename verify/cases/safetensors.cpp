// SPDX-License-Identifier: Apache-2.0
#include "verify/cases/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "verify/cases/file_io.h"
#include "verify/cases/file_parts.h"
#include "verify/cases/safetensors_header.h"

namespace fljsd {
namespace {

// The tensor that the entry describes, without its data, checked as far as one entry can be.
FileTensor describe(const HeaderEntry& entry, std::uint64_t data_bytes, const std::string& origin) {
  FileTensor tensor;
  const auto known = std::find_if(std::begin(format_dtypes), std::end(format_dtypes),
                                  [&](const FormatDType& d) { return d.name == *entry.dtype; });
  if (known == std::end(format_dtypes)) {
    refuse_file(origin, fmt::format("tensor {} has dtype {}, but it must be BF16, F16, F32, F64 or I64.",
                                    in_quotes(entry.name), in_quotes(*entry.dtype)));
  }
  tensor.dtype = known->dtype;

  // The size in bytes, refused where a product passes 2^63 − 1.
  Index bytes = 1;
  bool fits = true;
  for (std::uint64_t size : *entry.shape) {
    if (!std::in_range<Index>(size)) {
      refuse_file(origin, fmt::format("tensor {} has the size {} in its shape, but sizes must be below 2^63.",
                                      in_quotes(entry.name), size));
    }
    fits = fits && !__builtin_mul_overflow(bytes, static_cast<Index>(size), &bytes);
    tensor.shape.push_back(static_cast<Index>(size));
  }
  fits =
      fits && !__builtin_mul_overflow(bytes, static_cast<Index>(format_element_bytes(tensor.dtype)), &bytes);
  if (!fits)
    refuse_file(origin, fmt::format("tensor {} has shape {}, but its size must be below 2^63 bytes.",
                                    in_quotes(entry.name), shape_text(tensor.shape)));

  if (entry.offsets->size() != 2) {
    refuse_file(origin,
                fmt::format("data_offsets of tensor {} has {} numbers, but it must have two: begin and end.",
                            in_quotes(entry.name), entry.offsets->size()));
  }
  const std::uint64_t begin = (*entry.offsets)[0], end = (*entry.offsets)[1];
  if (begin > end || end > data_bytes) {
    refuse_file(origin,
                fmt::format("data_offsets of tensor {} is [{}, {}], but it must be ascending and within the "
                            "{} bytes of data.",
                            in_quotes(entry.name), begin, end, data_bytes));
  }
  if (end - begin != static_cast<std::uint64_t>(bytes)) {
    refuse_file(origin, fmt::format("tensor {} has {} bytes of data, but its shape {} and dtype {} need {}.",
                                    in_quotes(entry.name), end - begin, shape_text(tensor.shape), known->name,
                                    bytes));
  }
  return tensor;
}

// The tensors must follow each other without gaps and fill the data.
void check_layout(const std::vector<HeaderEntry>& entries, std::uint64_t data_bytes,
                  const std::string& origin) {
  struct Piece {
    std::uint64_t begin, end;
    const std::string* name;
  };
  std::vector<Piece> pieces;
  for (const HeaderEntry& entry : entries)
    pieces.push_back({(*entry.offsets)[0], (*entry.offsets)[1], &entry.name});
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t covered = 0;
  const Piece* previous = nullptr;
  for (const Piece& piece : pieces) {
    if (piece.begin < covered) {
      refuse_file(origin,
                  fmt::format("tensor {} begins at byte {} of the data, but tensor {} reaches to byte {} "
                              "and they must not overlap.",
                              in_quotes(*piece.name), piece.begin, in_quotes(*previous->name), covered));
    }
    if (piece.begin > covered) {
      refuse_file(origin,
                  fmt::format("bytes {} to {} of the data, before tensor {}, belong to no tensor, but "
                              "there must be no holes.",
                              covered, piece.begin, in_quotes(*piece.name)));
    }
    covered = piece.end;
    previous = &piece;
  }
  if (covered != data_bytes) {
    refuse_file(origin,
                fmt::format("the tensors end at byte {} of the data, but the file goes on to byte {} and "
                            "there must be no trailing bytes.",
                            covered, data_bytes));
  }
}

// `owner` keeps the bytes alive; it may be empty.
SafetensorsFile parse(std::span<const std::byte> bytes, const std::string& origin,
                      const std::shared_ptr<const void>& owner) {
  if (bytes.size() < format_length_bytes)
    refuse_file(origin,
                fmt::format("the file has {} bytes, but a safetensors file has at least 8 and a header.",
                            bytes.size()));
  std::uint64_t header_bytes;
  std::memcpy(&header_bytes, bytes.data(), format_length_bytes);
  bytes = bytes.subspan(format_length_bytes);
  if (header_bytes > format_max_header_bytes) {
    refuse_file(
        origin,
        fmt::format("the header length is {}, but it must be at most {}; this may be no safetensors file.",
                    header_bytes, format_max_header_bytes));
  }
  if (header_bytes > bytes.size()) {
    refuse_file(origin,
                fmt::format("the header length is {}, but only {} bytes follow; the file may be truncated.",
                            header_bytes, bytes.size()));
  }
  const auto header = bytes.first(header_bytes);
  const auto data = bytes.subspan(header_bytes);
  const char* text = reinterpret_cast<const char*>(header.data());
  if (header.empty() || *text != '{')
    refuse_file(origin, "the header does not begin with '{', as the header of a safetensors file must.");

  SafetensorsHeader described = parse_header({text, header.size()}, origin);

  SafetensorsFile file;
  for (const HeaderEntry& entry : described.entries) {
    FileTensor tensor = describe(entry, data.size(), origin);
    tensor.data = std::shared_ptr<const std::byte>(owner, data.data() + (*entry.offsets)[0]);
    file.tensors.emplace(entry.name, std::move(tensor));
  }
  check_layout(described.entries, data.size(), origin);
  file.metadata = std::move(described.metadata);
  return file;
}

}  // namespace

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
  const auto [data, size] = map_file(path);
  return parse({data.get(), size}, path.string(), data);
}

SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, const std::string& origin) {
  return parse(bytes, origin, nullptr);
}

}  // namespace fljsd
