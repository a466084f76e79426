// SPDX-License-Identifier: Apache-2.0
// Text files that are either complete or not there at all. Errors are FileError sentences (safetensors.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fljsd {

// Throws FileError if a file could not be written at `path`: for finding out before minutes of work.
void require_writable(const std::filesystem::path& path);

// A file, and the option or argument that names it; none if the path is empty.
struct NamedFile {
  std::string option, path;
  bool may_be_stdout = false;  // "-" is standard output; else it is refused
};
// The same for all outputs of a command. Refuses two outputs that are one file, and an output that would
// replace what the command reads.
void require_outputs(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs = {});

// Replaces the file at `path` by one that holds `text`, in one step.
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace fljsd
