// SPDX-License-Identifier: Apache-2.0
// "Did you mean": the valid name that is nearest to a mistyped one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fljsd {

// Insertions, deletions, substitutions and swaps of neighbours that turn a into b (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b);

// The nearest of `names`, if it is near enough to be what was meant: at most one edit in three characters, or
// a name that `typed` abbreviates.
std::optional<std::string> nearest_name(std::string_view typed, const std::vector<std::string>& names);

// "there is no family 'publishd'; did you mean 'published'?", or the list of names when none is near.
std::string unknown_name(std::string_view kind, std::string_view typed,
                         const std::vector<std::string>& names);

}  // namespace fljsd
