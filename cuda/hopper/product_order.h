// SPDX-License-Identifier: Apache-2.0
// Which cluster computes which tile of the two matrix products X and Y of gemm.cuh, and when. Plain integer
// arithmetic that host, producer warps and consumer warps agree on.
//
// A tile of a cluster is 256 tokens x 256 vocabulary entries. Blocks of tokens form groups of about equal
// size, at most eight, so that a group's activations (16 MB for hidden 4096) stay in the L2 cache while the
// weights pass by. Tiles are numbered product by product, group by group, column by column, block by block:
// clusters that work at the same time share a few column tiles and the activations of one group. Cluster c
// takes the tiles c, c + clusters, c + 2·clusters, ... of both products as one list, so that there is one
// ragged end and not two.
#pragma once

#include "cuda/hopper/tile_order.h"

namespace fljsd::cuda::hopper {

constexpr int product_columns = 256;  // vocabulary entries of a tile

struct ProductTile {
  int product = 0;  // 0: student, 1: teacher
  int block = 0;    // of block_rows tokens
  int column = 0;   // of product_columns entries
};

struct ProductOrder {
  int token_blocks = 0;
  int column_tiles = 0;
  int group_blocks = 1;
  int clusters = 1;

  constexpr int tiles() const { return token_blocks * column_tiles; }  // of a product
  constexpr int items() const { return 2 * tiles(); }
  constexpr ProductTile tile(int item) const {
    const int product = item >= tiles() ? 1 : 0;
    const int in_product = item - product * tiles();
    const int first_block = in_product / (group_blocks * column_tiles) * group_blocks;
    const int in_group = in_product - first_block * column_tiles;
    const int left = token_blocks - first_block, width = left < group_blocks ? left : group_blocks;
    return {product, first_block + in_group % width, in_group / width};
  }
};

// The caller makes sure that the number of tiles of both products fits an int.
constexpr ProductOrder make_product_order(int tokens, int vocab, int clusters) {
  constexpr int most_group_blocks = 8;
  ProductOrder order;
  order.token_blocks = (tokens + block_rows - 1) / block_rows;
  order.column_tiles = (vocab + product_columns - 1) / product_columns;
  const int groups = (order.token_blocks + most_group_blocks - 1) / most_group_blocks;
  order.group_blocks = (order.token_blocks + groups - 1) / groups;
  order.clusters = clusters < order.items() ? clusters : order.items();
  return order;
}

}  // namespace fljsd::cuda::hopper
