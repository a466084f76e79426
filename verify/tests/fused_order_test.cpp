// SPDX-License-Identifier: Apache-2.0
// The fused kernel's order of tiles and the turning of its sums, on the host.
#include <array>
#include <cmath>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "cuda/hopper/tile_order.h"
#include "cuda/one_pass_turn.h"

namespace fljsd::cuda::hopper {
namespace {

TileOrder draw_order() {
  const int tokens = *rc::gen::resize(100, rc::gen::inRange(1, 20000));
  const int vocab = *rc::gen::resize(100, rc::gen::inRange(1, 60000));
  const int clusters = *rc::gen::elementOf(std::vector<int>{1, 2, 3, 5, 7, 16, 57, 64, 66, 72});
  const int blocks = *rc::gen::inRange(1, 13);
  return make_tile_order(tokens, vocab, clusters, blocks);
}

// Tiles that are dropped or done twice; clusters without work, which would leave their records unwritten;
// more turns than there is shared memory for.
RC_GTEST_PROP(FusedOrder, EveryTileOnceAndEveryClusterBusy, ()) {
  const TileOrder order = draw_order();
  std::vector<int> done(
      static_cast<std::size_t>(order.token_blocks) * static_cast<std::size_t>(order.column_tiles), 0);
  for (int cluster = 0; cluster < order.clusters; ++cluster) {
    int groups = 0;
    std::set<int> blocks_of_group;
    for (TileCursor cursor(order, cluster); !cursor.done(); cursor.advance()) {
      if (cursor.first_of_group()) ++groups, blocks_of_group.clear();
      blocks_of_group.insert(cursor.block());
      RC_ASSERT(static_cast<int>(blocks_of_group.size()) <= most_turns);
      RC_ASSERT(cursor.turn() >= 0 && cursor.turn() < cursor.group.turns);
      RC_ASSERT(cursor.block() < order.token_blocks && cursor.column_tile() < order.column_tiles);
      ++done[static_cast<std::size_t>(cursor.block()) * static_cast<std::size_t>(order.column_tiles) +
             static_cast<std::size_t>(cursor.column_tile())];
    }
    int all = 0;
    for (Group g = order.first(); g.blocks > 0; g = order.after(g)) RC_ASSERT(g.index == all++);
    RC_ASSERT(groups == all);
  }
  for (const int times : done) RC_ASSERT(times == 1);
}

// Two clusters that write one record, records that nobody writes, a turn that means another block when the
// records are written than when the tiles were done.
RC_GTEST_PROP(FusedOrder, EveryRecordOnce, ()) {
  const TileOrder order = draw_order();
  for (Group g = order.first(); g.blocks > 0; g = order.after(g)) {
    std::set<std::pair<int, int>> written;  // block of the group, slot
    for (int cluster = 0; cluster < order.clusters; ++cluster) {
      for (int turn = 0; turn < g.turns; ++turn) {
        const int block = (cluster + turn * order.clusters) % g.blocks, slot = cluster / (g.blocks / g.turns);
        RC_ASSERT(slot < g.slots);
        RC_ASSERT(written.emplace(block, slot).second);
        // The visit whose turn this is meets that block.
        RC_ASSERT((cluster + (turn + g.turns) * order.clusters) % g.blocks == block);
      }
    }
    RC_ASSERT(static_cast<int>(written.size()) == g.blocks * g.slots);
  }
}

// Groups are few and of about equal size: 8192 tokens on 66 clusters sweep the vocabulary 4 times.
TEST(FusedOrder, PublishedSizes) {
  const auto groups = [](int tokens) {
    std::vector<int> sizes;
    const TileOrder order = make_tile_order(tokens, 128256, 66, 11);
    for (Group g = order.first(); g.blocks > 0; g = order.after(g)) sizes.push_back(g.blocks);
    return sizes;
  };
  EXPECT_EQ(groups(1024), (std::vector<int>{4}));
  EXPECT_EQ(groups(2048), (std::vector<int>{4, 4}));
  EXPECT_EQ(groups(4096), (std::vector<int>{6, 6, 4}));
  EXPECT_EQ(groups(8192), (std::vector<int>{11, 11, 6, 4}));
}

// A sign or a factor 2 in the turning of the sums when references rise.
RC_GTEST_PROP(FusedTurn, TurnsEveryAngle, ()) {
  const auto angle = [] { return *rc::gen::resize(100, rc::gen::inRange(-314159, 314160)) * 1e-5; };
  const double delta = angle();
  std::array<double, 5> want{};
  float sums[5] = {};
  for (int i = 0; i < 6; ++i) {
    const double weight = *rc::gen::inRange(1, 100) * 0.01, phi = angle();
    const auto add = [&](auto& to, double c, double s) {
      const double terms[5] = {1, c, s, c * c, c * s};
      for (std::size_t k = 0; k < 5; ++k)
        to[k] += static_cast<std::decay_t<decltype(to[k])>>(weight * terms[k]);
    };
    add(sums, std::cos(phi), std::sin(phi));
    add(want, std::cos(phi + delta), std::sin(phi + delta));
  }
  turn_powers(sums, static_cast<float>(std::sin(delta)), static_cast<float>(std::cos(delta)));
  // Six sums of at most 6, a dozen roundings of 2^-24 each of terms of at most 2·6.
  for (std::size_t k = 0; k < 5; ++k) RC_ASSERT(std::abs(sums[k] - want[k]) <= 20 * 12 * 0x1p-24);
}

}  // namespace
}  // namespace fljsd::cuda::hopper
