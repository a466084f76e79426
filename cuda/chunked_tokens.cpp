// SPDX-License-Identifier: Apache-2.0
// Stage `chunked-tokens`. Promise: the same numbers as `unfused` row by row, in a workspace that the caller
// can bound.
//
// Equations as in unfused.cpp, logits for C tokens at a time, and gradients for the G tokens whose dlogits
// are kept. Where one group is not all, the weight gradient of the groups is accumulated in fp32 and rounded
// once at the end; accumulating it in bf16 would stall (512 increments of 1 stop at 256).
//
// T tokens, V vocab, H hidden. FLOPs as unfused. Bytes: both weights T/C times a pass (2.1 GB each time at V
// = 128256, H = 4096); logits 8·T·V written and read; backward with several groups: the fp32 weight gradient,
// 4·V·H, read and written T/G times. Memory: 8·C·V for logits, 2·G·V for dlogits, 4·G·H for the input
// gradient before it is rounded, 4·V·H for the weight gradient when T > G.
//
// Without a memory budget C is 1024 tokens for a loss (1.1 GB at V = 128256) and 2048 with gradients, where
// dlogits need as much anyway: they are half as large as one model's logits, and those of 2·H tokens as large
// as the fp32 weight gradient that they make unnecessary: so up to T = 2·H all are kept (2.1 GB at 8192
// tokens), beyond that 2·H at a time. Error budget as unfused.
#include <algorithm>

#include "cuda/failure.h"
#include "cuda/token_chunks.h"

namespace fljsd::cuda {
namespace {

// Chunks of 1024 tokens cost 1.5 % of a pass with gradients more than those of 2048 (docs/kernels.md).
constexpr Index usual_chunk(fljsd_pass pass) {
  return pass == FLJSD_FORWARD ? 1024 : 2048;
}

bool fits(const Settings& s, fljsd_pass pass, const ChunkSizes& sizes) {
  return s.memory_budget == 0 || TokenChunks::workspace_bytes(s, FLJSD_F32, pass, sizes) <= s.memory_budget;
}

// A length in [1, most] for which possible(length) holds, the largest if it holds for all shorter ones; 0 if
// it does not hold for 1.
template <class Possible>
Index largest(Index most, const Possible& possible) {
  if (possible(most)) return most;
  if (!possible(1)) return 0;
  Index low = 1, high = most;  // low is possible, high is not
  while (high - low > 1) {
    const Index middle = low + (high - low) / 2;
    (possible(middle) ? low : high) = middle;
  }
  return low;
}

// As few pieces of `total` as `size` allows, all about equally long; multiples of a product's tile.
Index even_pieces(Index total, Index size) {
  if (size == 0) return 0;
  if (size >= total) return total;
  const Index whole_tiles = round_up(ceil_div(total, ceil_div(total, size)), 128);
  return whole_tiles <= size ? whole_tiles : size >= 128 ? size / 128 * 128 : size;
}

// Tokens whose dlogits are as many bytes as the fp32 weight gradient, in whole chunks; all if they are not
// more.
Index group_of(const Settings& s, Index chunk) {
  const Index most = 4 * s.student.hidden / size_of(s.student.dtype);
  return most >= s.tokens || chunk >= s.tokens ? std::max<Index>(s.tokens, 1)
                                               : std::max<Index>(1, most / chunk) * chunk;
}

ChunkSizes choose(const Settings& s, fljsd_pass pass) {
  const Index all = std::max<Index>(s.tokens, 1);
  const bool backward = pass == FLJSD_FORWARD_BACKWARD;
  const auto with_group = [&](Index chunk) {
    return ChunkSizes{chunk, backward ? group_of(s, chunk) : chunk};
  };
  if (s.chunk_tokens > 0) {
    const Index chunk = std::min(s.chunk_tokens, all);
    for (const ChunkSizes sizes : {with_group(chunk), ChunkSizes{chunk, chunk}})
      if (fits(s, pass, sizes)) return sizes;
    fail(FLJSD_WORKSPACE_TOO_SMALL, "chunk_tokens is ", s.chunk_tokens, ", which needs ",
         TokenChunks::workspace_bytes(s, FLJSD_F32, pass, {chunk, chunk}), " bytes, but memory_budget is ",
         s.memory_budget, " bytes.");
  }
  if (s.memory_budget == 0) return with_group(std::min(all, usual_chunk(pass)));
  // The most tokens that fit beside the dlogits of a group, if they are enough to be fast; otherwise the most
  // whose logits and dlogits fit.
  const auto fit = [&](Index chunk) { return fits(s, pass, with_group(chunk)); };
  if (const Index chunk = even_pieces(all, largest(std::min(all, usual_chunk(pass)), fit));
      chunk >= std::min<Index>(all, 128) && fit(chunk)) {
    return with_group(chunk);
  }
  const Index most = largest(all, [&](Index chunk) { return fits(s, pass, {chunk, chunk}); });
  if (most == 0) {
    fail(FLJSD_WORKSPACE_TOO_SMALL, "memory_budget is ", s.memory_budget,
         " bytes, but even one token at a time stage chunked-tokens needs ",
         TokenChunks::workspace_bytes(s, FLJSD_F32, pass, {1, 1}), ".");
  }
  const Index chunk = even_pieces(all, most);
  return {chunk, chunk};
}

}  // namespace

std::unique_ptr<Stage> make_chunked_tokens(const Settings& settings) {
  return std::make_unique<TokenChunks>(
      settings, FLJSD_F32, settings.has(FLJSD_FORWARD) ? choose(settings, FLJSD_FORWARD).chunk : 1,
      settings.any_grad() ? choose(settings, FLJSD_FORWARD_BACKWARD) : ChunkSizes{});
}

}  // namespace fljsd::cuda
