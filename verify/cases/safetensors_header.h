// SPDX-License-Identifier: Apache-2.0
// The safetensors format's constants, and its JSON header as text stands for it. Not for use outside
// verify/cases.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/dtype.h"

namespace fljsd {

static_assert(std::endian::native == std::endian::little, "the format's numbers are little-endian");

// A file begins with the header's length in this many bytes; the format limits the length.
constexpr std::size_t format_length_bytes = 8;
constexpr std::uint64_t format_max_header_bytes = 100'000'000;

// The name in the header that does not stand for a tensor.
constexpr const char* format_metadata_key = "__metadata__";

struct FormatDType {
  const char* name;
  std::optional<DType> dtype;  // absent: I64
};
constexpr FormatDType format_dtypes[] = {{"BF16", DType::bf16},
                                         {"F16", DType::f16},
                                         {"F32", DType::f32},
                                         {"F64", DType::f64},
                                         {"I64", std::nullopt}};

std::size_t format_element_bytes(std::optional<DType> dtype);

// What the header says about one tensor; parse_header() has filled in everything.
struct HeaderEntry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<std::uint64_t>> shape;
  std::optional<std::vector<std::uint64_t>> offsets;
};

struct SafetensorsHeader {
  std::vector<HeaderEntry> entries;  // with different names, in the order of the text
  std::map<std::string, std::string> metadata;
};

// Reads the JSON text; refuses with a FileError what is not of the form
//   { "__metadata__": {string: string, ...}, NAME: {"dtype": string, "shape": [n, ...],
//     "data_offsets": [n, ...]}, ... }
// with each key at most once and no field missing. What the values mean is not looked at.
SafetensorsHeader parse_header(std::string_view text, const std::string& origin);

}  // namespace fljsd
