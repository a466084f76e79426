// SPDX-License-Identifier: Apache-2.0
// Text files that are either complete or not there at all. Errors are FileError sentences (safetensors.h).
#pragma once

#include <filesystem>
#include <string>

namespace fljsd {

// Throws FileError if a file could not be written at `path`: for finding out before minutes of work.
void require_writable(const std::filesystem::path& path);

// Replaces the file at `path` by one that holds `text`, in one step.
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace fljsd
