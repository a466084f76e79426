// SPDX-License-Identifier: Apache-2.0
#include "verify/report/output_file.h"

#include <span>
#include <system_error>

#include <fmt/format.h>

#include "verify/cases/file_io.h"
#include "verify/cases/file_parts.h"

namespace fljsd {
namespace {

bool is_file(const NamedFile& file) {
  return !file.path.empty() && !(file.may_be_stdout && file.path == "-");
}

bool same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code error;
  if (std::filesystem::equivalent(a, b, error)) return true;  // false where one is not there
  const auto full = [&](const std::filesystem::path& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path));  // a relative one may stay so
  };
  return full(a) == full(b);
}

}  // namespace

void require_writable(const std::filesystem::path& path) {
  const ReplacementFile vanishes_unless_committed(path);
}

void require_outputs(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const NamedFile& output = outputs[i];
    if (!is_file(output)) continue;
    if (output.path == "-") throw FileError(output.option + " takes a file, not '-'.");
    for (const NamedFile& input : inputs)
      if (is_file(input) && same_file(output.path, input.path))
        refuse_file(output.path, fmt::format("{} names the file of {}, but it must not replace what is read.",
                                             output.option, input.option));
    for (std::size_t k = 0; k < i; ++k)
      if (is_file(outputs[k]) && same_file(output.path, outputs[k].path))
        refuse_file(output.path, fmt::format("{} and {} name this file, but each must have one of its own.",
                                             outputs[k].option, output.option));
    require_writable(output.path);
  }
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  ReplacementFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace fljsd
