// SPDX-License-Identifier: Apache-2.0
// Files that are either complete or not there at all.
#pragma once

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

namespace fljsd {

// what() is one sentence that names the file.
class OutputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws OutputError if a file could not be written at `path`: for finding out before hours of work.
void require_writable(const std::filesystem::path& path);

// Writes `text` to a temporary file in the same folder and renames it to `path`; what is no regular file (a
// pipe, /dev/stdout) is written directly. Throws OutputError.
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace fljsd
