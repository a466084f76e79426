// SPDX-License-Identifier: Apache-2.0
#include "verify/report/output_file.h"

#include <span>

#include "verify/cases/file_io.h"

namespace fljsd {

void require_writable(const std::filesystem::path& path) {
  const ReplacementFile vanishes_unless_committed(path);
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  ReplacementFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace fljsd
