// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "verify/reproduce/comparison.h"

namespace fljsd {

std::string comparison_text(const Comparison& comparison, int width);
nlohmann::ordered_json comparison_json(const Comparison& comparison);

// Time over tokens of the forward pass, both axes logarithmic: what is published, what was measured, and the
// floor. Standalone SVG.
std::string comparison_svg(const Comparison& comparison);

// The README's table of measured speed, in Markdown, without the markers around it.
std::string readme_speed(const BenchRecord& record);

// Replaces what stands between the lines <!-- begin:NAME --> and <!-- end:NAME -->. Throws
// std::invalid_argument when they are not there once each, in this order.
std::string replace_section(const std::string& document, const std::string& name, const std::string& text);

}  // namespace fljsd
