// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/cuda/snapshot.h"

#include <algorithm>

namespace fljsd {

void Snapshot::add(const DeviceBuffer& buffer, DeviceBuffer::Extent extent) {
  parts_.push_back({&buffer, extent, size_});
  size_ += buffer.image_size(extent);
}

void Snapshot::take(CallMemory* memory) {
  if (memory == nullptr) own_.resize(size_);
  std::byte* const to = memory == nullptr ? own_.data() : memory->host.take(size_);
  for (const Part& part : parts_) part.buffer->copy_image(to + part.at, part.extent);
  check_cuda(cudaStreamSynchronize(nullptr));
  data_ = to;
}

const Snapshot::Part& Snapshot::find(const DeviceBuffer& buffer) const {
  return *std::find_if(parts_.begin(), parts_.end(),
                       [&](const Part& part) { return part.buffer == &buffer; });
}

bool Snapshot::is_intact(const DeviceBuffer& buffer) const {
  const Part& part = find(buffer);
  return buffer.is_intact(data_ + part.at, part.extent);
}

const std::byte* Snapshot::contents(const DeviceBuffer& buffer) const {
  return buffer.contents(data_ + find(buffer).at);
}

}  // namespace fljsd
