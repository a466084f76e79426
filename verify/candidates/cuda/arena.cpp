// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/cuda/arena.h"

#include <algorithm>

#include "verify/candidates/cuda/device_buffer.h"

namespace fljsd {
namespace {

constexpr std::size_t alignment = 256;

std::size_t smallest_block(Arena::Where where) {
  return where == Arena::Where::device ? std::size_t{128} << 20 : std::size_t{4} << 20;
}

}  // namespace

Arena::~Arena() {
  free_blocks();
}

std::byte* Arena::take(std::size_t bytes) {
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  if (blocks_.empty() || blocks_.back().size - used_ < rounded) add_block(rounded);
  std::byte* const taken = blocks_.back().data + used_;
  used_ += rounded;
  all_used_ += rounded;
  return taken;
}

void Arena::reset() {
  if (blocks_.size() > 1) {
    free_blocks();
    add_block(all_used_);
  }
  used_ = all_used_ = 0;
}

void Arena::add_block(std::size_t bytes) {
  const std::size_t size = std::max(smallest_block(where_), bytes);
  void* data = nullptr;
  check_cuda(where_ == Where::device ? cudaMalloc(&data, size) : cudaMallocHost(&data, size));
  blocks_.push_back({static_cast<std::byte*>(data), size});
  used_ = 0;
}

void Arena::free_blocks() {
  for (const Block& block : blocks_)
    where_ == Where::device ? cudaFree(block.data) : cudaFreeHost(block.data);
  blocks_.clear();
}

void CallMemory::reset() {
  check_cuda(cudaDeviceSynchronize());
  device.reset();
  host.reset();
}

}  // namespace fljsd
