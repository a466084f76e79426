// SPDX-License-Identifier: Apache-2.0
#include "reference/shards.h"

#include <algorithm>

namespace fljsd {

std::vector<Shard> cut_vocabulary(Index vocab, Index count, std::uint64_t seed) {
  std::vector<Index> ends;  // of every shard but the last
  for (Index s = 1; s < count; ++s) {
    if (seed == 0) {
      ends.push_back(vocab * s / count);
    } else {
      // splitmix64
      std::uint64_t z = seed + static_cast<std::uint64_t>(s) * 0x9e3779b97f4a7c15u;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
      z ^= z >> 31;
      ends.push_back(static_cast<Index>(z % (static_cast<std::uint64_t>(vocab) + 1)));
    }
  }
  std::sort(ends.begin(), ends.end());
  ends.push_back(vocab);
  std::vector<Shard> shards;
  Index first = 0;
  for (const Index end : ends) {
    shards.push_back({first, end - first});
    first = end;
  }
  return shards;
}

}  // namespace fljsd
