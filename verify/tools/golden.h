// SPDX-License-Identifier: Apache-2.0
// The golden set: small cases with certified answers, for any project that computes this divergence.
// data/golden/README.md documents the files.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/enclosure.h"
#include "verify/cases/case.h"

namespace fljsd {

struct GoldenCase {
  std::string_view name;      // of its files
  std::string_view stresses;  // what an implementation may get wrong here
  std::string_view recipe;    // see verify/cases/recipe.h
};

// The set, in the order of the manifest. golden_cases.cpp is the one list: a line there makes a case.
std::span<const GoldenCase> golden_cases();

// Makes NAME.safetensors and NAME.json for every case, and manifest.json, in a folder that exists; with
// `names`, only the files of these cases. The bytes are the same on every machine. Throws FileError, and
// std::invalid_argument for a name that does not exist.
void make_golden(const std::filesystem::path& folder, const std::vector<std::string>& names = {});

// The text of NAME.json: certified losses and gradients of the case.
std::string golden_answer(const GoldenCase& golden, const Case& c);

// A bound as a decimal with at most `digits` significant digits: `text` (as in Enclosure::lo_text) rounded up
// or down.
std::string rounded_decimal(const std::string& text, std::size_t digits, bool up);

}  // namespace fljsd
