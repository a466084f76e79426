// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "verify/reproduce/comparison.h"

namespace fljsd {

std::string comparison_text(const PublishedComparison& comparison, int width);
nlohmann::ordered_json comparison_json(const PublishedComparison& comparison);

// Time over tokens of the forward pass, both axes logarithmic: what is published, what was measured, and the
// floor. Standalone SVG.
std::string comparison_svg(const PublishedComparison& comparison);

// The README's table of measured speed, in Markdown, without the markers around it.
std::string readme_speed(const BenchRecord& record);

// Errors against float64 truth by stage and number of tokens, one table for each family of inputs that has
// any.
std::string readme_accuracy(const BenchRecord& record);

// How long the truth takes on a processor, from what `./fljsd bench-cpu` wrote as JSON. Throws
// std::invalid_argument or nlohmann's exceptions where a benchmark is missing.
std::string readme_truth(const nlohmann::json& benchmark);

// The published workload's table of errors, as `./fljsd audit` printed it, in a code block. Throws
// std::invalid_argument where the text has none.
std::string readme_audit(const std::string& audit);

// Replaces what stands between the lines <!-- begin:NAME --> and <!-- end:NAME -->. Throws
// std::invalid_argument when they are not there once each, in this order.
std::string replace_section(const std::string& document, const std::string& name, const std::string& text);

// The document with every table of those above that it has the markers of (speed, accuracy, truth, audit)
// made anew from the data in that folder. Throws as they do.
std::string with_tables(std::string document, const std::filesystem::path& data);

}  // namespace fljsd
