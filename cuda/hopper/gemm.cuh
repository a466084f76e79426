// SPDX-License-Identifier: Apache-2.0
// A matrix product for Hopper, as plain as one at cuBLASLt's speed can be. The fused sweep (sweep.cuh) is
// this loop with two sets of accumulators and a larger epilogue: read this one first.
//
//   X = student_input · student_weightᵀ,  Y = teacher_input · teacher_weightᵀ
//
// T tokens, V vocab, H_s and H_t hidden. FLOPs 2·T·V·(H_s + H_t). What becomes of a tile's logits is the
// Epilogue's business: written in the inputs' format (gemm_logits.cu), or reduced (gemm_log_sum_exp.cu).
//
// A block of threads computes 128 tokens x 256 entries. One producer warp lets the copy engine fill a ring of
// four stages in shared memory, each 128 x 64 elements of the inputs and 256 x 64 of the weights; two
// warpgroups of consumers, 64 tokens each, multiply them: 128 accumulators a thread. Why so:
//
//   - a k step of 16 costs a warpgroup 128 cycles of the tensor core and reads (64 + 256)·32 bytes of shared
//     memory; smaller tiles read more for each product, larger ones do not fit the registers
//   - two blocks on neighbouring multiprocessors form a cluster with different tokens and the same entries:
//     each loads half of a weight tile for both, which halves the weights' way through L2
//   - producer and consumers meet in barriers only: a stage is full when its bytes have come, empty when the
//     consumers of both blocks have released it. The producer runs up to four stages ahead, also past the end
//     of a tile, so that the next tile's first stages are there when a consumer leaves its epilogue
//   - a consumer that is in its epilogue leaves the tensor cores to the other one
//   - the kernel is persistent: as many clusters as fit take turns on the tiles (product_order.h)
#pragma once

#include "cuda/hopper/gemm.h"
#include "cuda/hopper/ptx.cuh"
#include "cuda/hopper/wgmma.cuh"

namespace fljsd::cuda::hopper::product {

constexpr int k_block = 64;  // elements of hidden in a stage: 128 bytes, one swizzle row
constexpr int stages = 4;
constexpr int input_bytes = cta_rows * k_block * 2;
constexpr int weight_bytes = product_columns * k_block * 2;
constexpr int stage_bytes = input_bytes + weight_bytes;
constexpr int accumulators_of_thread = product_columns / 2;

// Shared memory: the ring, what the epilogue wants, and 1024 bytes to reach a multiple of 1024 (the swizzle's
// atom).
constexpr int shared_bytes(int epilogue_bytes) {
  return stages * stage_bytes + epilogue_bytes + 1024;
}

struct Shared {
  std::uint32_t ring, full, empty;
  std::uint32_t epilogue;
};

// Position in the ring: a stage, and the parity of its barriers' phase.
struct Position {
  std::uint32_t stage = 0, parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

// Fills the ring, one thread a block.
__device__ __forceinline__ void produce(const ProductMaps& maps, const ProductArguments& p,
                                        const Shared& shared, int cluster, int rank) {
  constexpr std::uint16_t both = (1u << cluster_size) - 1;
  Position at;
  for (int item = cluster; item < p.order.items(); item += p.order.clusters) {
    const ProductTile tile = p.order.tile(item);
    const CUtensorMap* input = tile.product == 0 ? &maps.input[0] : &maps.input[1];
    const CUtensorMap* weight = tile.product == 0 ? &maps.weight[0] : &maps.weight[1];
    const int blocks = tile.product == 0 ? p.k_blocks[0] : p.k_blocks[1];
    const int row = tile.block * block_rows + rank * cta_rows;
    const int entry = tile.column * product_columns + rank * (product_columns / cluster_size);
    for (int k = 0; k < blocks; ++k, at.advance()) {
      barrier_wait(shared.empty + 8 * at.stage, at.parity ^ 1);
      const std::uint32_t to = shared.ring + at.stage * stage_bytes, barrier = shared.full + 8 * at.stage;
      barrier_arrive_expect(barrier, stage_bytes);
      copy_box(to, input, barrier, k * k_block, row);
      copy_box_multicast(to + input_bytes + rank * (weight_bytes / cluster_size), weight, barrier,
                         k * k_block, entry, both);
    }
  }
}

template <class Element, class TileEpilogue>
__device__ __forceinline__ void consume(const ProductMaps& maps, const ProductArguments& p,
                                        const Shared& shared, int cluster, int rank) {
  const int thread = static_cast<int>(threadIdx.x) - 128, group = thread / 128, in_group = thread % 128;
  TileEpilogue epilogue(maps, p, shared.epilogue, thread);
  Position at;
  // Threads 0 and 1 of a warpgroup tell the two blocks of the cluster that a stage may be filled again.
  const bool tells = in_group < cluster_size;
  const std::uint32_t told = tells ? cluster_address(shared.empty, static_cast<std::uint32_t>(in_group)) : 0;
  // The loop's own instructions cost power, so what is the same for a warp is made known as such, and what
  // the loop needs is kept from being computed anew.
  const std::uint32_t first_input =
      same_for_warp(operand_low(shared.ring + static_cast<std::uint32_t>(group) * (input_bytes / 2)));
  const std::uint32_t first_weight = same_for_warp(operand_low(shared.ring + input_bytes));
  const std::uint32_t first_full = kept(shared.full);
  for (int item = cluster; item < p.order.items(); item += p.order.clusters) {
    const ProductTile tile = p.order.tile(item);
    const auto blocks =
        static_cast<int>(kept(static_cast<std::uint32_t>(p.k_blocks[tile.product == 0 ? 0 : 1])));
    float accumulators[accumulators_of_thread];
    int release = -1;  // the stage that the products before the last ones read
#pragma unroll 1
    for (int k = 0; k < blocks; ++k) {
      barrier_wait(first_full + 8 * at.stage, at.parity);
      const std::uint32_t from = at.stage * (stage_bytes / 16);
      wgmma_fence();
      Wgmma<Element, product_columns>::add(accumulators, first_input + from, first_weight + from, k != 0);
      wgmma_commit();
      // One group of products is always under way; what it reads is released one round later.
      wgmma_wait<1>();
      if (release >= 0 && tells) barrier_arrive_cluster(told + 8 * release);
      release = static_cast<int>(at.stage);
      at.advance();
    }
    wgmma_wait<0>();
    pin(accumulators);
    if (tells) barrier_arrive_cluster(told + 8 * release);
    epilogue.take(accumulators, tile, tile.block * block_rows + rank * cta_rows + group * 64);
  }
  epilogue.finish();
}

// TileEpilogue: constructed by every consumer thread; take(accumulators, tile, first token of the warpgroup)
// once a tile; finish() at the end; shared_bytes of shared memory.
template <class Element, class TileEpilogue>
__global__ void __launch_bounds__(384, 1)
    multiply(const __grid_constant__ ProductMaps maps, const __grid_constant__ ProductArguments p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char raw[];
  __shared__ std::uint64_t barriers[2 * stages];  // the launcher knows by it that this body was compiled
  const std::uint32_t start = shared_address(raw), full = shared_address(barriers);
  const std::uint32_t ring = start + (1024 - start % 1024) % 1024;
  const Shared shared{ring, full, full + 8 * stages, ring + stages * stage_bytes};
  const int rank = static_cast<int>(cluster_rank()), cluster = static_cast<int>(blockIdx.x) / cluster_size;
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; ++i) {
      barrier_init(shared.full + 8 * i, 1);
      barrier_init(shared.empty + 8 * i, 2 * cluster_size);  // a thread of every warpgroup of consumers
    }
    barrier_init_fence();
  }
  cluster_sync();
  if (threadIdx.x < 128) {
    give_registers<40>();
    if (threadIdx.x == 0) produce(maps, p, shared, cluster, rank);
    __syncwarp();  // the barrier below is one instruction for all threads of a warp
  } else {
    take_registers<232>();
    consume<Element, TileEpilogue>(maps, p, shared, cluster, rank);
  }
  cluster_sync();  // a block must not end while the other one may still signal it
#endif
}

}  // namespace fljsd::cuda::hopper::product
