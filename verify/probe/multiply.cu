// SPDX-License-Identifier: Apache-2.0
// Products computed by a chosen instruction. Written to be plain, not fast: one tile a block, no pipelining.
#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "verify/candidates/cuda/device_buffer.h"
#include "verify/probe/instructions.cuh"
#include "verify/probe/products.h"

namespace fljsd::probe {
namespace {

struct Operands {
  const std::uint16_t* a;
  const std::uint16_t* b;
  const float* c;  // or null
  float* d;
  long long rows, cols, depth;
};

// Operands of batch element blockIdx.z.
__device__ Operands element_of(Operands o) {
  const long long z = blockIdx.z;
  o.a += z * o.rows * o.depth;
  o.b += z * o.cols * o.depth;
  o.d += z * o.rows * o.cols;
  if (o.c != nullptr) o.c += z * o.rows * o.cols;
  return o;
}

// Columns k .. k + 63 of `rows` rows, or as many as there are, into a swizzled operand.
__device__ void stage(unsigned char* shared, const std::uint16_t* from, int rows, long long depth,
                      long long k) {
  const int pieces = static_cast<int>(min(8ll, (depth - k) / 8));
  for (int i = threadIdx.x; i < rows * pieces; i += blockDim.x) {
    const int row = i / pieces, piece = i % pieces;
    *reinterpret_cast<uint4*>(shared + swizzled_offset(row, piece)) =
        *reinterpret_cast<const uint4*>(from + row * depth + k + piece * 8);
  }
}

// 128 threads, a tile of 64 × N. K in steps of 64 through shared memory, four instructions each. With
// `in_flight` all four are issued before the first is waited for, as fast kernels do: should the accumulator
// hold more than fp32 between them, the answers differ. It needs a depth that is a multiple of 64, and no c.
template <class Element, int N, bool in_flight>
__global__ void __launch_bounds__(128) wgmma_kernel(Operands operands) {
  extern __shared__ __align__(1024) unsigned char shared[];
  unsigned char* const shared_a = shared;
  unsigned char* const shared_b = shared + 64 * 128;
  const Operands o = element_of(operands);
  const long long row0 = blockIdx.y * 64ll, col0 = blockIdx.x * static_cast<long long>(N);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto place = [&](int j) {
    const long long row = row0 + 16 * warp + lane / 4 + 8 * (j / 2 % 2);
    return row * o.cols + col0 + 8 * (j / 4) + 2 * (lane % 4) + j % 2;
  };

  float d[N / 2];
#pragma unroll
  for (int j = 0; j < N / 2; ++j) d[j] = !in_flight && o.c != nullptr ? o.c[place(j)] : 0.0f;
  int accumulate = !in_flight && o.c != nullptr;
  for (long long k = 0; k < o.depth; k += 64) {
    __syncthreads();
    stage(shared_a, o.a + row0 * o.depth, 64, o.depth, k);
    stage(shared_b, o.b + col0 * o.depth, N, o.depth, k);
    publish_shared_memory();
    const std::uint64_t a =
        swizzled_descriptor(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_a)));
    const std::uint64_t b =
        swizzled_descriptor(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_b)));
    if constexpr (in_flight) {
      wgmma_begin();
#pragma unroll
      for (int step = 0; step < 4; ++step)  // each 32 bytes further along K
        Wgmma<Element, N>::run(d, a + 2 * step, b + 2 * step, step > 0 || accumulate);
    } else {
      const int steps = static_cast<int>(min(4ll, (o.depth - k) / 16));
      for (int step = 0; step < steps; ++step) {
        if (step > 0) wgmma_finish();
        wgmma_begin();
        Wgmma<Element, N>::run(d, a + 2 * step, b + 2 * step, step > 0 || accumulate);
      }
    }
    wgmma_finish();
    accumulate = 1;
  }
#pragma unroll
  for (int j = 0; j < N / 2; ++j) o.d[place(j)] = d[j];
}

// 128 threads, a tile of 64 × 8: sixteen rows a warp.
template <class Element>
__global__ void __launch_bounds__(128) mma_kernel(Operands operands) {
  const Operands o = element_of(operands);
  const int group = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
  const long long row = blockIdx.y * 64ll + threadIdx.x / 32 * 16 + group, col = blockIdx.x * 8ll;
  const auto place = [&](int j) { return (row + 8 * (j / 2)) * o.cols + col + 2 * quad + j % 2; };
  const auto pair = [&](const std::uint16_t* matrix, long long r, long long k) {
    return *reinterpret_cast<const std::uint32_t*>(matrix + r * o.depth + k + 2 * quad);
  };
  float d[4];
  for (int j = 0; j < 4; ++j) d[j] = o.c != nullptr ? o.c[place(j)] : 0.0f;
  for (long long k = 0; k < o.depth; k += 16) {
    const std::uint32_t a[4] = {pair(o.a, row, k), pair(o.a, row + 8, k), pair(o.a, row, k + 8),
                                pair(o.a, row + 8, k + 8)};
    const std::uint32_t b[2] = {pair(o.b, col + group, k), pair(o.b, col + group, k + 8)};
    Mma<Element>::run(d, a, b);
  }
  for (int j = 0; j < 4; ++j) o.d[place(j)] = d[j];
}

void check(cudaError_t status, const char* doing) {
  if (status != cudaSuccess)
    throw std::runtime_error(std::string(doing) + ": " + cudaGetErrorString(status) + '.');
}

// A copy of a host array; of nothing: no buffer.
template <class T>
DeviceBuffer copy_of(const std::vector<T>& host) {
  if (host.empty()) return {};
  const auto* first = reinterpret_cast<const std::byte*>(host.data());
  return DeviceBuffer(std::vector<std::byte>(first, first + host.size() * sizeof(T)));
}

template <class Element, int N, bool in_flight>
void launch_wgmma(dim3 grid, const Operands& operands) {
  constexpr int shared_bytes = (64 + N) * 128;
  check(cudaFuncSetAttribute(wgmma_kernel<Element, N, in_flight>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             shared_bytes),
        "asking for shared memory");
  wgmma_kernel<Element, N, in_flight><<<grid, 128, shared_bytes>>>(operands);
}

}  // namespace

std::vector<std::uint32_t> multiply_on_device(Instruction instruction, const Products& p) {
  const bool half = p.dtype == DType::f16;
  const int n = instruction == Instruction::wgmma_n160 ? 160 : 8;
  if (p.rows % 64 != 0 || p.cols % n != 0 || p.depth % 16 != 0 ||
      (n == 160 && (half || p.depth % 64 != 0 || !p.c.empty())))
    throw std::runtime_error("multiply_on_device: sizes must be whole instructions of a format it has.");
  const DeviceBuffer a = copy_of(p.a), b = copy_of(p.b), c = copy_of(p.c);
  std::vector<std::uint32_t> answer(static_cast<std::size_t>(p.batch * p.rows * p.cols));
  const DeviceBuffer d(answer.size() * 4, 0, 0xa5);  // poisoned: a value that was not written shows
  const Operands operands{
      a.as<std::uint16_t>(), b.as<std::uint16_t>(), c.as<float>(), d.as<float>(), p.rows, p.cols, p.depth};
  const dim3 grid(static_cast<unsigned>(p.cols / n), static_cast<unsigned>(p.rows / 64),
                  static_cast<unsigned>(p.batch));
  if (instruction == Instruction::wgmma_n160) {
    launch_wgmma<__nv_bfloat16, 160, true>(grid, operands);
  } else if (instruction == Instruction::wgmma_n8) {
    half ? launch_wgmma<__half, 8, false>(grid, operands)
         : launch_wgmma<__nv_bfloat16, 8, false>(grid, operands);
  } else if (half) {
    mma_kernel<__half><<<grid, 128>>>(operands);
  } else {
    mma_kernel<__nv_bfloat16><<<grid, 128>>>(operands);
  }
  check(cudaGetLastError(), "starting a product");
  check(cudaDeviceSynchronize(), "computing a product");
  const std::vector<std::byte> bytes = d.to_host();
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(answer.data()));
  return answer;
}

}  // namespace fljsd::probe
