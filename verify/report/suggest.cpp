// SPDX-License-Identifier: Apache-2.0
#include "verify/report/suggest.h"

#include <algorithm>

#include <fmt/format.h>

namespace fljsd {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // distance[i][j] between the first i characters of a and the first j of b
  std::vector<std::vector<std::size_t>> distance(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        distance[i][j] = i + j;
        continue;
      }
      distance[i][j] = std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1,
                                 distance[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
    }
  }
  return distance[a.size()][b.size()];
}

std::optional<std::string> nearest_name(std::string_view typed, const std::vector<std::string>& names) {
  std::optional<std::string> nearest;
  std::size_t least = std::max<std::size_t>(2, typed.size() / 3) + 1;
  for (const std::string& name : names) {
    std::size_t distance = edit_distance(typed, name);
    if (typed.size() >= 2 && name.starts_with(typed)) distance = std::min<std::size_t>(distance, 1);
    if (distance < least && distance < name.size()) {
      least = distance;
      nearest = name;
    }
  }
  return nearest;
}

std::string unknown_name(std::string_view kind, std::string_view typed,
                         const std::vector<std::string>& names) {
  if (const auto nearest = nearest_name(typed, names))
    return fmt::format("there is no {} '{}'; did you mean '{}'?", kind, typed, *nearest);
  return fmt::format("there is no {} '{}'; there are {}.", kind, typed, fmt::join(names, ", "));
}

}  // namespace fljsd
