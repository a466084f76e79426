// SPDX-License-Identifier: Apache-2.0
// Memory that successive calls of stages share. Allocating and freeing device memory waits for the device,
// and so does copying between it and pageable memory: for a small case that takes far longer than its
// kernels.
#pragma once

#include <cstddef>
#include <vector>

namespace fljsd {

// Memory that is handed out from front to back and taken back all at once. Not for several threads.
class Arena {
 public:
  enum class Where { device, pinned_host };

  explicit Arena(Where where) : where_(where) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // At a multiple of 256 bytes; valid until reset(). Throws std::runtime_error when there is no more memory.
  std::byte* take(std::size_t bytes);
  // Takes everything back. What was enqueued on it must be done.
  void reset();

 private:
  void add_block(std::size_t bytes);
  void free_blocks();

  struct Block {
    std::byte* data;
    std::size_t size;
  };
  Where where_;
  std::vector<Block> blocks_;  // one, as soon as it is large enough for every case
  std::size_t used_ = 0;       // of the last block
  std::size_t all_used_ = 0;   // of all blocks, since reset()
};

// What a call takes from both sides.
struct CallMemory {
  Arena device{Arena::Where::device};
  Arena host{Arena::Where::pinned_host};

  // Waits for the device first.
  void reset();
};

}  // namespace fljsd
