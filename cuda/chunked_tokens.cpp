// SPDX-License-Identifier: Apache-2.0
// Stage `chunked-tokens`. Promise: the same numbers as `unfused` row by row, in a workspace that the caller
// can bound.
//
// Equations as in unfused.cpp, for C tokens at a time. The weight gradient of all chunks is accumulated in
// fp32 and rounded once at the end; accumulating it in bf16 would stall (512 increments of 1 stop at 256).
//
// T tokens, V vocab, H hidden. FLOPs as unfused. Bytes: both weights T/C times a pass (2.1 GB each time at V
// = 128256, H = 4096); logits 8·T·V written and read; backward with several chunks: the fp32 weight gradient,
// 4·V·H, read and written T/C times. Memory: 8·C·V for logits, 2·C·V for dlogits, 4·V·H for the weight
// gradient when T > C.
//
// Without a memory budget C is 1024 tokens forward (1.1 GB at V = 128256) and 4096 with gradients (5.3 GB,
// and 2.1 GB for the weight gradient): more tokens at once make the traffic of the weight gradient smaller.
// Error budget as unfused.
#include <algorithm>

#include "cuda/failure.h"
#include "cuda/token_chunks.h"

namespace fljsd::cuda {
namespace {

Index choose_chunk(const Settings& s, fljsd_pass pass) {
  const Index all = std::max<Index>(s.tokens, 1);
  const auto fits = [&](Index chunk) {
    return s.memory_budget == 0 || TokenChunks::workspace_bytes(s, FLJSD_F32, pass, chunk) <= s.memory_budget;
  };
  if (s.chunk_tokens > 0) {
    const Index chunk = std::min(s.chunk_tokens, all);
    if (!fits(chunk)) {
      fail(FLJSD_WORKSPACE_TOO_SMALL, "chunk_tokens is ", s.chunk_tokens, ", which needs ",
           TokenChunks::workspace_bytes(s, FLJSD_F32, pass, chunk), " bytes, but memory_budget is ",
           s.memory_budget, " bytes.");
    }
    return chunk;
  }
  if (s.memory_budget == 0) return std::min<Index>(all, pass == FLJSD_FORWARD ? 1024 : 4096);
  // The most tokens that fit, then as few chunks as that needs and all about equally long; multiples of a
  // product's tile.
  if (fits(all)) return all;
  if (!fits(1)) {
    fail(FLJSD_WORKSPACE_TOO_SMALL, "memory_budget is ", s.memory_budget,
         " bytes, but even one token at a time stage chunked-tokens needs ",
         TokenChunks::workspace_bytes(s, FLJSD_F32, pass, 1), ".");
  }
  Index low = 1, high = all;  // low fits, high does not
  while (high - low > 1) {
    const Index middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  const Index even = ceil_div(all, ceil_div(all, low));
  const Index whole_tiles = round_up(even, 128);
  return whole_tiles <= low ? whole_tiles : low >= 128 ? low / 128 * 128 : low;
}

}  // namespace

std::unique_ptr<Stage> make_chunked_tokens(const Settings& settings) {
  return std::make_unique<TokenChunks>(
      settings, FLJSD_F32, choose_chunk(settings, FLJSD_FORWARD),
      settings.any_grad() ? choose_chunk(settings, FLJSD_FORWARD_BACKWARD) : Index{1});
}

}  // namespace fljsd::cuda
