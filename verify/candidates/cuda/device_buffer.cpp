// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/cuda/device_buffer.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace fljsd {
namespace {

constexpr std::uint8_t guard_byte = 0xa5;

}  // namespace

void check_cuda(cudaError_t error) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorName(error) + ": " +
                             cudaGetErrorString(error));
  }
}

DeviceBuffer::DeviceBuffer(std::size_t bytes, std::size_t offset, std::uint8_t poison)
    : offset_(offset), size_(bytes) {
  const std::size_t all = bytes + offset + 2 * guard;
  void* allocation = nullptr;
  check_cuda(cudaMalloc(&allocation, all));
  allocation_ = static_cast<std::byte*>(allocation);
  check_cuda(cudaMemset(allocation_, guard_byte, guard + offset));
  check_cuda(cudaMemset(allocation_ + guard + offset + bytes, guard_byte, guard));
  fill(poison);
}

DeviceBuffer::DeviceBuffer(const std::vector<std::byte>& host, std::size_t offset)
    : DeviceBuffer(host.size(), offset) {
  check_cuda(cudaMemcpy(get(), host.data(), host.size(), cudaMemcpyHostToDevice));
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept {
  *this = std::move(other);
}
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(allocation_, other.allocation_);
  std::swap(offset_, other.offset_);
  std::swap(size_, other.size_);
  return *this;
}
DeviceBuffer::~DeviceBuffer() {
  cudaFree(allocation_);
}

std::vector<std::byte> DeviceBuffer::to_host() const {
  std::vector<std::byte> host(size_);
  check_cuda(cudaMemcpy(host.data(), get(), size_, cudaMemcpyDeviceToHost));
  return host;
}

void DeviceBuffer::fill(std::uint8_t value) {
  check_cuda(cudaMemset(get(), value, size_));
}

bool DeviceBuffer::intact() const {
  std::vector<std::uint8_t> before(guard + offset_), after(guard);
  check_cuda(cudaMemcpy(before.data(), allocation_, before.size(), cudaMemcpyDeviceToHost));
  check_cuda(cudaMemcpy(after.data(), get() + size_, after.size(), cudaMemcpyDeviceToHost));
  const auto is_guard = [](std::uint8_t byte) { return byte == guard_byte; };
  return std::all_of(before.begin(), before.end(), is_guard) &&
         std::all_of(after.begin(), after.end(), is_guard);
}

}  // namespace fljsd
