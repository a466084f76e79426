// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/cuda/device_buffer.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "verify/candidates/cuda/arena.h"

namespace fljsd {
namespace {

constexpr std::byte guard_byte{0xa5};

void set_bytes(std::byte* memory, std::byte value, std::size_t size) {
  if (size > 0) check_cuda(cudaMemsetAsync(memory, static_cast<int>(value), size));
}

}  // namespace

void check_cuda(cudaError_t error) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorName(error) + ": " +
                             cudaGetErrorString(error));
  }
}

DeviceBuffer::DeviceBuffer(std::size_t bytes, std::size_t offset, std::uint8_t poison, CallMemory* memory)
    : offset_(offset), size_(bytes) {
  const std::size_t all = front() + bytes + guard;
  if (memory != nullptr) {
    memory_ = memory->device.take(all);
  } else {
    void* allocation = nullptr;
    check_cuda(cudaMalloc(&allocation, all));
    memory_ = static_cast<std::byte*>(allocation);
    is_owner_ = true;
  }
  set_bytes(memory_, guard_byte, front());
  set_bytes(get() + bytes, guard_byte, guard);
  fill(poison);
}

DeviceBuffer::DeviceBuffer(const std::vector<std::byte>& host, std::size_t offset, CallMemory* memory)
    : DeviceBuffer(host.size(), offset, 0xff, memory) {
  if (host.empty()) return;
  if (memory == nullptr) {
    check_cuda(cudaMemcpy(get(), host.data(), host.size(), cudaMemcpyHostToDevice));
    return;
  }
  std::byte* const pinned = memory->host.take(host.size());
  std::memcpy(pinned, host.data(), host.size());
  check_cuda(cudaMemcpyAsync(get(), pinned, host.size(), cudaMemcpyHostToDevice));
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept {
  *this = std::move(other);
}
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(is_owner_, other.is_owner_);
  std::swap(offset_, other.offset_);
  std::swap(size_, other.size_);
  return *this;
}
DeviceBuffer::~DeviceBuffer() {
  if (is_owner_) cudaFree(memory_);
}

std::vector<std::byte> DeviceBuffer::to_host() const {
  std::vector<std::byte> host(size_);
  check_cuda(cudaMemcpy(host.data(), get(), size_, cudaMemcpyDeviceToHost));
  return host;
}

void DeviceBuffer::fill(std::uint8_t value) {
  set_bytes(get(), std::byte{value}, size_);
}

std::size_t DeviceBuffer::image_size(Extent extent) const {
  return front() + (extent == Extent::everything ? size_ : 0) + guard;
}

void DeviceBuffer::copy_image(std::byte* to, Extent extent) const {
  if (extent == Extent::everything) {
    check_cuda(cudaMemcpyAsync(to, memory_, image_size(extent), cudaMemcpyDeviceToHost));
    return;
  }
  check_cuda(cudaMemcpyAsync(to, memory_, front(), cudaMemcpyDeviceToHost));
  check_cuda(cudaMemcpyAsync(to + front(), get() + size_, guard, cudaMemcpyDeviceToHost));
}

bool DeviceBuffer::is_intact(const std::byte* image, Extent extent) const {
  const auto is_guard = [](std::byte byte) { return byte == guard_byte; };
  const std::byte* const after = image + image_size(extent) - guard;
  return std::all_of(image, image + front(), is_guard) && std::all_of(after, after + guard, is_guard);
}

}  // namespace fljsd
