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

// The widths: 160 of 80 accumulators, the sweep's, and 256 of 128, the widest one. Of each: the constraints
// of the accumulators, which are the statement's first operands; their numbers; and names for the operands
// after them.
// clang-format off
#define FLJSD_8(i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define FLJSD_TEN(tens) \
  "%" #tens "0, %" #tens "1, %" #tens "2, %" #tens "3, %" #tens "4, " \
  "%" #tens "5, %" #tens "6, %" #tens "7, %" #tens "8, %" #tens "9"
#define FLJSD_INPUTS(a, b, high, adds) \
  "mov.b32 low_a, %" #a ";\nmov.b32 low_b, %" #b ";\nmov.b32 high, %" #high ";\nsetp.ne.b32 p, %" #adds ", 0;\n"

#define FLJSD_ACCUMULATORS_80 \
  FLJSD_8(0), FLJSD_8(8), FLJSD_8(16), FLJSD_8(24), FLJSD_8(32), \
  FLJSD_8(40), FLJSD_8(48), FLJSD_8(56), FLJSD_8(64), FLJSD_8(72)
#define FLJSD_NUMBERS_80 \
  FLJSD_TEN() ", " FLJSD_TEN(1) ", " FLJSD_TEN(2) ", " FLJSD_TEN(3) ", " \
  FLJSD_TEN(4) ", " FLJSD_TEN(5) ", " FLJSD_TEN(6) ", " FLJSD_TEN(7)
#define FLJSD_INPUTS_80 FLJSD_INPUTS(80, 81, 82, 83)

#define FLJSD_ACCUMULATORS_128 \
  FLJSD_ACCUMULATORS_80, FLJSD_8(80), FLJSD_8(88), FLJSD_8(96), FLJSD_8(104), FLJSD_8(112), FLJSD_8(120)
#define FLJSD_NUMBERS_128 \
  FLJSD_NUMBERS_80 ", " FLJSD_TEN(8) ", " FLJSD_TEN(9) ", " FLJSD_TEN(10) ", " FLJSD_TEN(11) ", " \
  "%120, %121, %122, %123, %124, %125, %126, %127"
#define FLJSD_INPUTS_128 FLJSD_INPUTS(128, 129, 130, 131)

// A product of 16 elements along k; `adds`: a predicate, or 1. `format`: the instruction's word for Element.
#define FLJSD_PRODUCT(format, columns, numbers, offset, adds) \
  "add.u32 t, low_a, " #offset ";\nmov.b64 a, {t, high};\nadd.u32 t, low_b, " #offset ";\nmov.b64 b, {t, high};\n" \
  "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." #format "." #format \
  " {" numbers "}, a, b, " #adds ", 1, 1, 0, 0;\n"
#define FLJSD_DEFINE_WGMMA(Element, format, columns, accumulators) \
  template <> \
  struct Wgmma<Element, columns> { \
    static __device__ __forceinline__ void add(float (&d)[accumulators], std::uint32_t a, std::uint32_t b, bool adds) { \
      asm volatile( \
          "{\n.reg .pred p;\n.reg .b32 low_a, low_b, high, t;\n.reg .b64 a, b;\n" FLJSD_INPUTS_##accumulators \
          FLJSD_PRODUCT(format, columns, FLJSD_NUMBERS_##accumulators, 0, p) \
          FLJSD_PRODUCT(format, columns, FLJSD_NUMBERS_##accumulators, 2, 1) \
          FLJSD_PRODUCT(format, columns, FLJSD_NUMBERS_##accumulators, 4, 1) \
          FLJSD_PRODUCT(format, columns, FLJSD_NUMBERS_##accumulators, 6, 1) \
          "}" \
          : FLJSD_ACCUMULATORS_##accumulators \
          : "r"(a), "r"(b), "r"(operand_high), "r"(static_cast<int>(adds))); \
    } \
  };

FLJSD_DEFINE_WGMMA(__nv_bfloat16, bf16, 160, 80)
FLJSD_DEFINE_WGMMA(__half, f16, 160, 80)
FLJSD_DEFINE_WGMMA(__nv_bfloat16, bf16, 256, 128)
FLJSD_DEFINE_WGMMA(__half, f16, 256, 128)

#undef FLJSD_DEFINE_WGMMA
#undef FLJSD_PRODUCT
#undef FLJSD_INPUTS_128
#undef FLJSD_NUMBERS_128
#undef FLJSD_ACCUMULATORS_128
#undef FLJSD_INPUTS_80
#undef FLJSD_NUMBERS_80
#undef FLJSD_ACCUMULATORS_80
#undef FLJSD_INPUTS
#undef FLJSD_TEN
#undef FLJSD_8
// clang-format on

}  // namespace fljsd::cuda::hopper
