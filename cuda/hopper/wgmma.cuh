// SPDX-License-Identifier: Apache-2.0
// wgmma m64nNk16, four of them: a warpgroup adds A·Bᵀ over 64 elements of k to its 64 x N fp32 accumulators,
// or sets them.
//
// Accumulators of a thread: d[4j + 2h + e] is row 16·warp + lane/4 + 8h, column 8j + 2·(lane % 4) + e, with
// warp in the warpgroup, j < N/8, h and e in {0, 1}.
//
// Operands are 64 and N rows of 64 two-byte elements (128 bytes) in shared memory in the 128-byte swizzle,
// eight rows an atom of 1024 bytes. The 64-bit descriptor that the instruction wants has address/16 in its
// low half, which is all that changes; its fields: leading offset (unused here) 1 at bit 16, stride of atoms
// 1024/16 at bit 32, swizzle mode 1 at bit 62. 16 elements along k are 2 in the address field.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace fljsd::cuda::hopper {

constexpr std::uint32_t operand_high = (1024 / 16) | (1u << 30);
// The low half for an operand at a multiple of 1024 in shared memory. Moving the operand by n bytes adds
// n/16.
__device__ __forceinline__ std::uint32_t operand_low(std::uint32_t shared_address) {
  return (shared_address >> 4) | (1u << 16);
}

// add(): a, b are low halves; adds = false: what the accumulators held does not matter. One asm statement, so
// that descriptors are a 32-bit addition each, and not four instructions.
template <class Element, int columns>
struct Wgmma;

// clang-format off
#define FLJSD_ACCUMULATORS_160 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"

// `format`: the instruction's word for Element.
#define FLJSD_DEFINE_WGMMA_160(Element, format) \
  template <> \
  struct Wgmma<Element, 160> { \
    static __device__ __forceinline__ void add(float (&d)[80], std::uint32_t a, std::uint32_t b, bool adds) { \
      asm volatile( \
          "{\n.reg .pred p;\n.reg .b32 t;\n.reg .b64 a, b;\nsetp.ne.b32 p, %83, 0;\n" \
          "mov.b64 a, {%80, %82};\nmov.b64 b, {%81, %82};\n" \
          "wgmma.mma_async.sync.aligned.m64n160k16.f32." format "." format " {" FLJSD_ACCUMULATORS_160 "}, a, b, p, 1, 1, 0, 0;\n" \
          "add.u32 t, %80, 2;\nmov.b64 a, {t, %82};\n" \
          "add.u32 t, %81, 2;\nmov.b64 b, {t, %82};\n" \
          "wgmma.mma_async.sync.aligned.m64n160k16.f32." format "." format " {" FLJSD_ACCUMULATORS_160 "}, a, b, 1, 1, 1, 0, 0;\n" \
          "add.u32 t, %80, 4;\nmov.b64 a, {t, %82};\n" \
          "add.u32 t, %81, 4;\nmov.b64 b, {t, %82};\n" \
          "wgmma.mma_async.sync.aligned.m64n160k16.f32." format "." format " {" FLJSD_ACCUMULATORS_160 "}, a, b, 1, 1, 1, 0, 0;\n" \
          "add.u32 t, %80, 6;\nmov.b64 a, {t, %82};\n" \
          "add.u32 t, %81, 6;\nmov.b64 b, {t, %82};\n" \
          "wgmma.mma_async.sync.aligned.m64n160k16.f32." format "." format " {" FLJSD_ACCUMULATORS_160 "}, a, b, 1, 1, 1, 0, 0;\n" \
          "}" \
          : \
            "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), \
            "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), \
            "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), \
            "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
            "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), \
            "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), \
            "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), \
            "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), \
            "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), \
            "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), \
            "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), \
            "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), \
            "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), \
            "+f"(d[78]), "+f"(d[79]) \
          : "r"(a), "r"(b), "r"(operand_high), "r"(static_cast<int>(adds))); \
    } \
  };

FLJSD_DEFINE_WGMMA_160(__nv_bfloat16, "bf16")
FLJSD_DEFINE_WGMMA_160(__half, "f16")

#undef FLJSD_DEFINE_WGMMA_160
#undef FLJSD_ACCUMULATORS_160
// clang-format on

}  // namespace fljsd::cuda::hopper
