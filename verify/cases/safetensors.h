// SPDX-License-Identifier: Apache-2.0
// Cases and results as safetensors files: an 8-byte header length, a JSON header, then the tensors' bytes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "verify/cases/case.h"

namespace fljsd {

// what() is one sentence that names the file, what is wrong with it and what would be allowed.
class FileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A tensor as it stands in a file; I64 exists for labels, which have no DType.
struct FileTensor {
  std::optional<DType> dtype;  // absent: I64
  std::vector<Index> shape;
  std::shared_ptr<const std::byte> data;
};

struct SafetensorsFile {
  std::map<std::string, FileTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Maps the file and checks all of it before anything is returned: header length, JSON, dtypes, shape ×
// element size against offsets, overlaps, holes, duplicate names, trailing bytes. Throws FileError.
SafetensorsFile read_safetensors(const std::filesystem::path& path);

// The same checks on bytes in memory, which must outlive the result. `origin` names them in errors.
SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, const std::string& origin);

// Writes through a temporary file in the same folder and a rename, so that `path` is never half written. On
// any failure `path` is as it was, the temporary file is gone, and FileError is thrown. Tensors are laid out
// by falling element size, then by name, so that each is aligned.
void write_safetensors(const std::filesystem::path& path, const SafetensorsFile& file);

// The bytes that write_safetensors() writes.
std::vector<std::byte> serialise_safetensors(const SafetensorsFile& file);

// A case file: tensors and metadata strings as docs/math.md and docs/verify_your_kernel.md describe. Metadata
// with other keys becomes provenance; a tensor with another name is refused. Throws FileError; what
// validate() refuses is a FileError with its sentence. Tensors stay in the mapped file.
Case read_case(const std::filesystem::path& path);
Case parse_case(std::span<const std::byte> bytes, const std::string& origin);
void write_case(const std::filesystem::path& path, const Case& c);

}  // namespace fljsd
