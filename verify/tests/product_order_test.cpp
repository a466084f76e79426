// SPDX-License-Identifier: Apache-2.0
// The order in which the clusters of the plain Hopper products take tiles (integer arithmetic, no device
// needed).
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "cuda/hopper/product_order.h"

namespace fljsd {
namespace {

using cuda::hopper::ProductOrder;
using cuda::hopper::ProductTile;

// Sizes with ragged ends of blocks, tiles, groups and rounds.
rc::Gen<int> tokens() {
  return rc::gen::resize(1000, rc::gen::inRange(1, 9000));
}
rc::Gen<int> vocab() {
  return rc::gen::resize(1000, rc::gen::inRange(1, 20000));
}
rc::Gen<int> clusters() {
  return rc::gen::elementOf(std::vector<int>{1, 2, 3, 7, 57, 64, 66, 72});
}

// A tile of a product that no cluster computes, or two do.
RC_GTEST_PROP(ProductOrder, TakesEveryTileOnce, ()) {
  const ProductOrder order = cuda::hopper::make_product_order(*tokens(), *vocab(), *clusters());
  std::vector<int> times(static_cast<std::size_t>(order.items()), 0);
  for (int cluster = 0; cluster < order.clusters; ++cluster) {
    for (int item = cluster; item < order.items(); item += order.clusters) {
      const ProductTile tile = order.tile(item);
      RC_ASSERT(tile.product >= 0 && tile.product < 2);
      RC_ASSERT(tile.block >= 0 && tile.block < order.token_blocks);
      RC_ASSERT(tile.column >= 0 && tile.column < order.column_tiles);
      ++times[static_cast<std::size_t>((tile.product * order.token_blocks + tile.block) * order.column_tiles +
                                       tile.column)];
    }
  }
  RC_ASSERT(std::all_of(times.begin(), times.end(), [](int n) { return n == 1; }));
}

// Clusters that work at the same time read too many different activations.
RC_GTEST_PROP(ProductOrder, StaysInAGroup, ()) {
  const ProductOrder order = cuda::hopper::make_product_order(*tokens(), *vocab(), *clusters());
  RC_ASSERT(order.group_blocks <= 8);
  for (int item = 1; item < order.items(); ++item) {
    const ProductTile before = order.tile(item - 1), tile = order.tile(item);
    const bool same_group = before.product == tile.product &&
                            before.block / order.group_blocks == tile.block / order.group_blocks;
    if (same_group) RC_ASSERT(tile.column == before.column || tile.column == before.column + 1);
  }
}

}  // namespace
}  // namespace fljsd
