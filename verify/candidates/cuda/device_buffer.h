// SPDX-License-Identifier: Apache-2.0
// Device memory of checked runs: owned, poisoned, and surrounded by guard bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <cuda_runtime_api.h>

namespace fljsd {

// Throws std::runtime_error naming the error.
void check_cuda(cudaError_t error);

// A device buffer. 256 bytes on either side hold a pattern that intact() compares.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // `offset` bytes after a multiple of 256, to misalign it on purpose. Filled with `poison`.
  explicit DeviceBuffer(std::size_t bytes, std::size_t offset = 0, std::uint8_t poison = 0xff);
  // A copy of host bytes.
  explicit DeviceBuffer(const std::vector<std::byte>& host, std::size_t offset = 0);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  std::byte* get() const { return allocation_ == nullptr ? nullptr : allocation_ + guard + offset_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(get());
  }
  std::size_t size() const { return size_; }
  std::vector<std::byte> to_host() const;
  void fill(std::uint8_t value);
  // Nothing was written before or after the buffer.
  bool intact() const;

 private:
  static constexpr std::size_t guard = 256;
  std::byte* allocation_ = nullptr;
  std::size_t offset_ = 0;
  std::size_t size_ = 0;
};

}  // namespace fljsd
