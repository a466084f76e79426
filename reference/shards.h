// SPDX-License-Identifier: Apache-2.0
// A vocabulary cut into shards, and the one-pass statistics of a row put together from those of its shards.
//
// The sums of docs/one_pass.md, section 3, have one term for each vocabulary entry, so those of disjoint
// shards add up: Φ, Sx and Sy of the whole are Σ over shards of e^{(max_shard − max)/2 or 1}·(theirs), with
// the phases turned to a common ρ (state.h, merge()). In exact arithmetic the order of the shards and where
// they are cut change nothing.
#pragma once

#include <span>
#include <vector>

#include "reference/chernoff/kl_state.h"
#include "reference/chernoff/state.h"
#include "reference/dtype.h"

namespace fljsd {

// Entries [first, first + size) of a vocabulary; size 0 is a shard without entries.
struct Shard {
  Index first = 0;
  Index size = 0;
};

// `count` >= 1 consecutive shards of `vocab` entries, from rank 0 on. `seed` 0: sizes differ by one at most;
// otherwise ragged, and some may be empty. A pure function of its arguments.
std::vector<Shard> cut_vocabulary(Index vocab, Index count, std::uint64_t seed = 0);

// The states merged into an empty one in the order given; `order` is a permutation of their numbers.
template <class State>
State merge_in_order(State whole, const std::vector<State>& shards, std::span<const std::size_t> order) {
  for (const std::size_t s : order) whole.merge(shards[s]);
  return whole;
}

}  // namespace fljsd
