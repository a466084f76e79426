// SPDX-License-Identifier: Apache-2.0
// Device memory of checked runs: owned, poisoned, and surrounded by guard bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <cuda_runtime_api.h>

namespace fljsd {

struct CallMemory;

// Throws std::runtime_error naming the error.
void check_cuda(cudaError_t error);

// A device buffer. 256 bytes on either side hold a pattern, so that what was written beside it shows.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // `offset` bytes after a multiple of 256, to misalign it on purpose. Filled with `poison`. With `memory`,
  // valid until that is reset; without, an allocation of its own, whose ends compute-sanitizer knows.
  explicit DeviceBuffer(std::size_t bytes, std::size_t offset = 0, std::uint8_t poison = 0xff,
                        CallMemory* memory = nullptr);
  // A copy of host bytes.
  explicit DeviceBuffer(const std::vector<std::byte>& host, std::size_t offset = 0,
                        CallMemory* memory = nullptr);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  std::byte* get() const { return memory_ == nullptr ? nullptr : memory_ + front(); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(get());
  }
  std::size_t size() const { return size_; }
  std::vector<std::byte> to_host() const;
  void fill(std::uint8_t value);

  // What surrounds the buffer and, where wanted, the buffer itself, as one piece of host memory: the guard
  // before it, the contents, the guard after it.
  enum class Extent { guards, everything };
  std::size_t image_size(Extent extent) const;
  // Enqueues the copy on the default stream.
  void copy_image(std::byte* to, Extent extent) const;
  // Of a copy that has arrived: nothing was written beside the buffer; and where its contents are.
  bool is_intact(const std::byte* image, Extent extent) const;
  const std::byte* contents(const std::byte* image) const { return image + front(); }

 private:
  static constexpr std::size_t guard = 256;
  std::size_t front() const { return guard + offset_; }

  std::byte* memory_ = nullptr;
  bool is_owner_ = false;
  std::size_t offset_ = 0;
  std::size_t size_ = 0;
};

}  // namespace fljsd
