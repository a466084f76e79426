// SPDX-License-Identifier: Apache-2.0
// The dozen instructions of Hopper that CUDA C++ has no words for, under names that say what they do. Shared
// memory addresses are 32-bit offsets in the shared window. The instructions are described in the PTX ISA.
#pragma once

#include <cstdint>

#include <cuda.h>

namespace fljsd::cuda::hopper {

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// ---- mbarrier
//
// A phase completes when `arrivals` arrivals and all expected bytes have come in; phases alternate in parity.
// Waiting for the parity of the phase before the first one returns at once.

__device__ __forceinline__ void barrier_init(std::uint32_t barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
// Makes initialised barriers visible to the cluster and to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive_expect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ bool barrier_try(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t complete;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(complete)
      : "r"(barrier), "r"(parity)
      : "memory");
  return complete != 0;
}
__device__ __forceinline__ void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  while (!barrier_try(barrier, parity)) {
  }
}
// The address of the same variable in another block of the cluster.
__device__ __forceinline__ std::uint32_t cluster_address(std::uint32_t address, std::uint32_t rank) {
  std::uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}
// Arrives at a barrier of any block of the cluster. Without .release.cluster, which would fence all memory
// and halve the speed; what must be ordered here are wgmma reads, and those are complete when wgmma_wait
// returns.
__device__ __forceinline__ void barrier_arrive_cluster(std::uint32_t mapped_barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(mapped_barrier) : "memory");
}

// ---- clusters
__device__ __forceinline__ std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// ---- tensor memory access

// Copies a box of a matrix at (column, row) to shared memory, zeros outside the matrix, and counts the box's
// bytes at the barrier.
__device__ __forceinline__ void copy_box(std::uint32_t to, const CUtensorMap* map, std::uint32_t barrier,
                                         int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
      "[%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(column), "r"(row)
      : "memory");
}
// To the same offset of every block in `blocks`, a bit each; each block's barrier counts the bytes.
__device__ __forceinline__ void copy_box_multicast(std::uint32_t to, const CUtensorMap* map,
                                                   std::uint32_t barrier, int column, int row,
                                                   std::uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "h"(blocks)
      : "memory");
}

// ---- wgmma: products by a warpgroup of four warps, asynchronously
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `pending` groups are still running.
template <int pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
// Tells the compiler that the values may change here: neither computed earlier nor kept elsewhere. Used for
// accumulators around asynchronous products, and to keep the compiler from hoisting a whole epilogue, which
// would spill.
template <int count>
__device__ __forceinline__ void pin(float (&values)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

// The same value, which the compiler may then keep in a uniform register: `value` must be the same in all
// lanes.
__device__ __forceinline__ std::uint32_t same_for_warp(std::uint32_t value) {
  return __shfl_sync(0xffffffffu, value, 0);
}
// The same value, which the compiler must not compute a second time.
__device__ __forceinline__ std::uint32_t kept(std::uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

// ---- registers of a warpgroup
template <int registers>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

}  // namespace fljsd::cuda::hopper
