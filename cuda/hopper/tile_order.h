// SPDX-License-Identifier: Apache-2.0
// Which cluster works on which tile of the logits, when, and where its statistics go. Plain integer
// arithmetic that host, producer warps and consumer warps agree on.
//
// Tokens are cut into blocks of 256 (a cluster of two multiprocessors, 128 each), the vocabulary into tiles
// of 160 columns. A few blocks form a group, and a group is swept over the whole vocabulary before the
// next one starts: its activations stay in the L2 cache, and every weight tile is read from memory once a
// group. In a group, tile t is (block t mod blocks, column tile t div blocks), and cluster c takes t = c, c +
// clusters, c + 2·clusters, ...: at any time all clusters are at neighbouring columns, so that a weight tile
// is shared through L2 too.
//
// With g = gcd(blocks, clusters), cluster c only meets the blocks = c (mod g), in turns of blocks/g. That
// number is kept to 2 at most, because a cluster holds the statistics of every block that it meets in shared
// memory. Block b is met by the clusters = b (mod g), clusters/g of them: so many records a token.
#pragma once

#include <cstdint>

namespace fljsd::cuda::hopper {

constexpr int cluster_size = 2;
constexpr int cta_rows = 128;
constexpr int block_rows = cluster_size * cta_rows;  // tokens of a cluster's tile
constexpr int tile_columns = 160;                    // vocabulary entries of a tile
constexpr int most_turns = 2;                        // blocks that a cluster may meet in a group

constexpr int greatest_common_divisor(int a, int b) {
  while (b != 0) {
    const int rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// A group of blocks of tokens.
struct Group {
  int index = 0;
  int first_block = 0;
  int blocks = 0;                 // 0: there are no more groups
  int turns = 0;                  // blocks that a cluster meets
  int slots = 0;                  // records of a token
  std::int64_t first_record = 0;  // records are [group][row of the group][slot]

  constexpr std::int64_t records() const { return std::int64_t{blocks} * block_rows * slots; }
};

struct TileOrder {
  int token_blocks = 0;
  int column_tiles = 0;
  int clusters = 1;
  int group_blocks = 1;  // a group has the most blocks, up to this, that keep to most_turns

  constexpr Group group_from(int index, int first_block, std::int64_t first_record) const {
    Group group{index, first_block, token_blocks - first_block, 0, 0, first_record};
    if (group.blocks <= 0) return group;
    if (group.blocks > group_blocks) group.blocks = group_blocks;
    while (group.blocks > most_turns * greatest_common_divisor(group.blocks, clusters)) --group.blocks;
    const int g = greatest_common_divisor(group.blocks, clusters);
    group.turns = group.blocks / g;
    group.slots = clusters / g;
    return group;
  }
  constexpr Group first() const { return group_from(0, 0, 0); }
  constexpr Group after(const Group& group) const {
    return group_from(group.index + 1, group.first_block + group.blocks,
                      group.first_record + group.records());
  }
};

// The order for a launch: as many clusters as fit, but no more than any group has tiles, so that every
// cluster has work in every group; then as few groups as most_group_blocks allows, and of about equal size.
constexpr TileOrder make_tile_order(int tokens, int vocab, int most_clusters, int most_group_blocks) {
  TileOrder best;
  best.token_blocks = (tokens + block_rows - 1) / block_rows;
  best.column_tiles = (vocab + tile_columns - 1) / tile_columns;
  for (int clusters = most_clusters; clusters >= 1; --clusters) {
    int fewest = 0, largest_smallest = 0;
    for (int blocks = 1; blocks <= most_group_blocks && blocks <= best.token_blocks; ++blocks) {
      TileOrder order = best;
      order.clusters = clusters;
      order.group_blocks = blocks;
      int groups = 0, smallest = blocks;
      for (Group group = order.first(); group.blocks > 0; group = order.after(group)) {
        ++groups;
        if (group.blocks < smallest) smallest = group.blocks;
      }
      if (smallest * order.column_tiles < clusters) continue;
      if (fewest == 0 || groups < fewest || (groups == fewest && smallest > largest_smallest)) {
        fewest = groups;
        largest_smallest = smallest;
        best.clusters = clusters;
        best.group_blocks = blocks;
      }
    }
    if (fewest > 0) return best;
  }
  return best;
}

// A cluster's way through its tiles.
struct TileCursor {
  TileOrder order;
  Group group;
  int cluster;
  int visit = 0;  // tiles of this group before this one

  constexpr TileCursor(const TileOrder& o, int c) : order(o), group(o.first()), cluster(c) {}

  constexpr bool done() const { return group.blocks <= 0; }
  constexpr int tile() const { return cluster + visit * order.clusters; }
  constexpr int block() const { return group.first_block + tile() % group.blocks; }
  constexpr int column_tile() const { return tile() / group.blocks; }
  constexpr int turn() const { return visit % group.turns; }
  constexpr bool first_of_group() const { return visit == 0; }
  constexpr bool last_of_group() const {
    return tile() + order.clusters >= group.blocks * order.column_tiles;
  }
  constexpr void advance() {
    if (last_of_group()) {
      skip_group();
    } else {
      ++visit;
    }
  }
  constexpr void skip_group() {
    group = order.after(group);
    visit = 0;
  }
};

}  // namespace fljsd::cuda::hopper
