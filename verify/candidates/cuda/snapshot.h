// SPDX-License-Identifier: Apache-2.0
// Device buffers as they were at one moment, copied to the host together.
#pragma once

#include <cstddef>
#include <vector>

#include "verify/candidates/cuda/arena.h"
#include "verify/candidates/cuda/device_buffer.h"

namespace fljsd {

class Snapshot {
 public:
  // The buffer must exist as long as the snapshot.
  void add(const DeviceBuffer& buffer, DeviceBuffer::Extent extent = DeviceBuffer::Extent::everything);
  // Copies what was added, in the order of the default stream, and waits for it once. With `memory`, the copy
  // lies there, and is valid as long as that is.
  void take(CallMemory* memory);

  // Of a buffer that was added. Contents: only where everything was copied.
  bool is_intact(const DeviceBuffer& buffer) const;
  const std::byte* contents(const DeviceBuffer& buffer) const;

 private:
  struct Part {
    const DeviceBuffer* buffer;
    DeviceBuffer::Extent extent;
    std::size_t at;
  };
  const Part& find(const DeviceBuffer& buffer) const;

  std::vector<Part> parts_;
  std::size_t size_ = 0;
  std::vector<std::byte> own_;
  const std::byte* data_ = nullptr;
};

}  // namespace fljsd
