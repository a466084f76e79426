// SPDX-License-Identifier: Apache-2.0
// The tensor core instructions under examination, one thin wrapper each, and what wgmma needs around it.
// Notation and layouts: PTX ISA, "Asynchronous warpgroup level matrix instructions" and "Matrix fragments for
// mma.m16n8k16".
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace fljsd::probe {

// What shared memory holds must be visible to the asynchronous proxy before wgmma reads it.
__device__ inline void publish_shared_memory() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
}
__device__ inline void wgmma_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void wgmma_finish() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// The matrix descriptor of a K-major operand whose rows are 128 bytes, swizzled by 128: start address / 16,
// the leading offset (unused here), 1024 bytes between groups of eight rows, layout type 1.
__device__ inline std::uint64_t swizzled_descriptor(std::uint32_t shared_address) {
  return std::uint64_t{(shared_address & 0x3ffff) >> 4} | std::uint64_t{1} << 16 | std::uint64_t{64} << 32 |
         std::uint64_t{1} << 62;
}

// Where the 16-byte piece `piece` of row `row` lies in such an operand.
__device__ inline int swizzled_offset(int row, int piece) {
  return row * 128 + ((piece ^ (row & 7)) << 4);
}

// D[64, N] = A·Bᵀ + (accumulate ? D : 0). Thread t holds D[16·(t/32) + t%32/4 + 8·(j/2%2)][8·(j/4) + 2·(t%4)
// + j%2] in d[j].
template <class Element, int N>
struct Wgmma;

#define FLJSD_WGMMA_N8(ELEMENT, PTX_TYPE)                                                         \
  template <>                                                                                     \
  struct Wgmma<ELEMENT, 8> {                                                                      \
    __device__ static void run(float (&d)[4], std::uint64_t a, std::uint64_t b, int accumulate) { \
      asm volatile(                                                                               \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"                                             \
          "wgmma.mma_async.sync.aligned.m64n8k16.f32." PTX_TYPE "." PTX_TYPE                      \
          " {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;\n}\n"                                        \
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                        \
          : "l"(a), "l"(b), "r"(accumulate));                                                     \
    }                                                                                             \
  };
FLJSD_WGMMA_N8(__nv_bfloat16, "bf16")
FLJSD_WGMMA_N8(__half, "f16")
#undef FLJSD_WGMMA_N8

template <>
struct Wgmma<__nv_bfloat16, 160> {
  __device__ static void run(float (&d)[80], std::uint64_t a, std::uint64_t b, int accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %82, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n160k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
        "%10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
        "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
        "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
        "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
        "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, "
        "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79}, %80, %81, p, 1, 1, 0, 0;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),
          "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),
          "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),
          "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
          "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),
          "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),
          "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
          "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
          "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]),
          "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]),
          "+f"(d[78]), "+f"(d[79])
        : "l"(a), "l"(b), "r"(accumulate));
  }
};

// D[16, 8] = A·Bᵀ + D by one warp. With g = lane/4 and q = lane%4, a holds A[g], A[g+8] at k = 2q and then
// both at k = 2q + 8 (two elements a register), b holds B[g] at k = 2q and 2q + 8, d holds D[g][2q..],
// D[g+8][2q..].
template <class Element>
struct Mma;

#define FLJSD_MMA(ELEMENT, PTX_TYPE)                                                                      \
  template <>                                                                                             \
  struct Mma<ELEMENT> {                                                                                   \
    __device__ static void run(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) { \
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." PTX_TYPE "." PTX_TYPE                         \
                   ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"               \
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                       \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                   \
    }                                                                                                     \
  };
FLJSD_MMA(__nv_bfloat16, "bf16")
FLJSD_MMA(__half, "f16")
#undef FLJSD_MMA

}  // namespace fljsd::probe
