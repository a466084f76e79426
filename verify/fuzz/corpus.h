// SPDX-License-Identifier: Apache-2.0
// Counterexamples as small text files, one a file, with the case as safetensors beside it:
//
//   # A counterexample that fljsd fuzz found.
//   recipe: family=kaiming tokens=1 hidden=1 vocab=2 seed=0 student_bias[0]=-inf
//   property: accuracy
//   quantity: token_loss
//   manner: not finite
//   note: token_loss[0] must be 0.2157616
//
// An entry does not name the candidate: it is replayed against whatever is judged.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "verify/fuzz/campaign.h"

namespace fljsd {

struct CorpusEntry {
  Recipe recipe;
  FindingKind kind;  // as what it was found; `property` may be empty in a file written by hand
  std::string note;
};

std::string to_text(const CorpusEntry& entry);
// Throws FileError, one sentence that begins with `origin`: a line that is none of the above, a missing
// recipe, a recipe that is none.
CorpusEntry parse_entry(const std::string& text, const std::string& origin);
CorpusEntry read_entry(const std::filesystem::path& path);

// The files NAME.recipe of a folder, by name. Throws FileError if the folder cannot be read.
std::vector<std::filesystem::path> entry_files(const std::filesystem::path& folder);

// Makes the folder if need be. Throws FileError if it cannot be written to.
void open_corpus(const std::filesystem::path& folder);

struct WrittenEntry {
  std::filesystem::path file, case_file;
};
// Writes the entry and its case; the name follows from the kind and the recipe, so that the same
// counterexample has one file. Throws FileError.
WrittenEntry write_entry(const std::filesystem::path& folder, const CorpusEntry& entry);

}  // namespace fljsd
