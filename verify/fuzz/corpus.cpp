// SPDX-License-Identifier: Apache-2.0
#include "verify/fuzz/corpus.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include <fmt/format.h>

#include "verify/cases/file_parts.h"
#include "verify/cases/random.h"
#include "verify/cases/safetensors.h"
#include "verify/report/output_file.h"

namespace fljsd {
namespace {

namespace fs = std::filesystem;

constexpr const char* suffix = ".recipe";

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") + 1 - first);
}

// A file is a few lines; anything much larger is not one of ours.
constexpr std::uintmax_t largest_entry = 64 << 10;

std::string entry_name(const CorpusEntry& entry) {
  std::uint64_t hash = 0;
  for (const char c : to_text(entry.recipe) + "\n" + entry.kind.text())
    hash = splitmix64(hash, static_cast<unsigned char>(c));
  const std::string quantity = entry.kind.quantity.empty() ? "" : "-" + entry.kind.quantity;
  std::string name = fmt::format("{}{}-{:08x}", entry.kind.property, quantity, hash & 0xffffffff);
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

}  // namespace

std::string FindingKind::text() const {
  std::string text = property;
  if (!quantity.empty()) text += " of " + quantity;
  return fmt::format("{} ({})", text, manner);
}

std::string to_text(const CorpusEntry& entry) {
  std::string text =
      fmt::format("# A counterexample that fljsd fuzz found.\nrecipe: {}\n", to_text(entry.recipe));
  const auto add = [&](const char* key, std::string value) {
    std::replace(value.begin(), value.end(), '\n', ' ');
    if (!value.empty()) text += fmt::format("{}: {}\n", key, value);
  };
  add("property", entry.kind.property);
  add("quantity", entry.kind.quantity);
  add("manner", entry.kind.manner);
  add("note", entry.note);
  return text;
}

CorpusEntry parse_entry(const std::string& text, const std::string& origin) {
  CorpusEntry entry;
  bool has_recipe = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line = trimmed(line);
    if (line.empty() || line[0] == '#') continue;
    const std::size_t colon = line.find(':');
    const std::string key = trimmed(line.substr(0, colon));
    const std::string value = colon == std::string::npos ? "" : trimmed(line.substr(colon + 1));
    if (key == "recipe" && !has_recipe) {
      has_recipe = true;
      try {
        entry.recipe = parse_recipe(value);
      } catch (const InvalidProblem& error) {
        throw FileError(fmt::format("{}: {}", origin, error.what()));
      }
    } else if (key == "property") {
      entry.kind.property = value;
    } else if (key == "quantity") {
      entry.kind.quantity = value;
    } else if (key == "manner") {
      entry.kind.manner = value;
    } else if (key == "note") {
      entry.note = value;
    } else {
      throw FileError(fmt::format(
          "{}: the line {} is none of recipe, property, quantity, manner and note, with one recipe a file.",
          origin, in_quotes(line)));
    }
  }
  if (!has_recipe) throw FileError(origin + " has no line that begins with 'recipe:'.");
  return entry;
}

CorpusEntry read_entry(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (!error && !file) error = {errno, std::generic_category()};
  if (error) throw FileError(fmt::format("{} cannot be read: {}.", path.string(), error.message()));
  if (size > largest_entry)
    throw FileError(fmt::format("{} has {} bytes, but an entry of a corpus has at most {}.", path.string(),
                                size, largest_entry));
  return parse_entry({std::istreambuf_iterator<char>(file), {}}, path.string());
}

std::vector<fs::path> entry_files(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == suffix) files.push_back(at->path());
  if (error)
    throw FileError(fmt::format("{} cannot be read as a folder: {}.", folder.string(), error.message()));
  std::sort(files.begin(), files.end());
  return files;
}

void open_corpus(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder))
    throw FileError(fmt::format("{} cannot be made a folder: {}.", folder.string(),
                                error ? error.message() : "it is something else"));
  require_writable(folder / "state.json");
}

WrittenEntry write_entry(const fs::path& folder, const CorpusEntry& entry) {
  const fs::path path = folder / entry_name(entry);
  const WrittenEntry written{path.string() + suffix, path.string() + ".safetensors"};
  write_case(written.case_file, make_case(entry.recipe));
  write_text(written.file, to_text(entry));
  return written;
}

}  // namespace fljsd
