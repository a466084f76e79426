// SPDX-License-Identifier: Apache-2.0
// The products with logits rounded to the inputs' format and written.
//
// A warp has 16 tokens x 256 entries in fragments. It turns 64 entries at a time into a box of 16 x 64
// elements in shared memory, which the copy engine writes to memory while the warp goes on; two boxes take
// turns. No other warp is involved: nobody waits but for the copy engine to have read the box of the round
// before the last one.
#include "cuda/hopper/gemm.cuh"
#include "cuda/hopper/tensor_store.cuh"

namespace fljsd::cuda::hopper {
namespace {

template <class Element>
class WriteLogits {
 public:
  static constexpr int box_bytes = logits_box_rows * 128, boxes = 2, warps = 8;
  static constexpr int shared_bytes = warps * boxes * box_bytes;

  __device__ WriteLogits(const ProductMaps& maps, const ProductArguments&, std::uint32_t shared, int thread)
      : maps_(maps), lane_(thread % 32), warp_row_(thread % 128 / 32 * 16) {
    // Lane l says where row l % 8 of matrix l / 8 goes: matrices 0 and 1 are rows 0 to 7 and 8 to 15 of one
    // column of 16-byte chunks, 2 and 3 of the next. In the 128-byte swizzle chunk c of row r lies at c xor r
    // % 8.
    const int matrix = lane_ / 8, row = lane_ % 8 + matrix % 2 * 8;
    box_ = shared + thread / 32 * (boxes * box_bytes);
    row_ = box_ + row * 128;
    chunk_ = static_cast<std::uint32_t>(matrix / 2);
    swizzle_ = static_cast<std::uint32_t>(row % 8);
  }

  __device__ __forceinline__ void take(const float (&d)[product::accumulators_of_thread],
                                       const ProductTile& tile, int first_token) {
    const CUtensorMap* logits = tile.product == 0 ? &maps_.logits[0] : &maps_.logits[1];
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const std::uint32_t box = part % boxes * box_bytes;
      if (lane_ == 0) store_wait_read<boxes - 1>();
      __syncwarp();
#pragma unroll
      for (int j = 0; j < 8; j += 2) {  // groups of eight columns, as wgmma.cuh numbers accumulators
        const float* f = d + 4 * (8 * part + j);
        store_matrices(row_ + box + 16 * ((chunk_ + j) ^ swizzle_), round_pair<Element>(f[0], f[1]),
                       round_pair<Element>(f[2], f[3]), round_pair<Element>(f[4], f[5]),
                       round_pair<Element>(f[6], f[7]));
      }
      copy_engine_fence();
      __syncwarp();
      if (lane_ == 0)
        store_box(logits, box_ + box, tile.column * product_columns + 64 * part, first_token + warp_row_);
    }
  }
  // Shared memory must outlive the copies that read it.
  __device__ void finish() {
    if (lane_ == 0) store_wait_read<0>();
  }

 private:
  const ProductMaps& maps_;
  int lane_, warp_row_;
  std::uint32_t box_, row_, chunk_, swizzle_;
};

template <class Element>
ProductKernel kernel() {
  using E = WriteLogits<Element>;
  return {product::multiply<Element, E>, product::shared_bytes(E::shared_bytes)};
}

}  // namespace

ProductKernel logits_kernel(fljsd_dtype dtype) {
  return dtype == FLJSD_BF16 ? kernel<__nv_bfloat16>() : kernel<__half>();
}

}  // namespace fljsd::cuda::hopper
