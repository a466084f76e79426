// SPDX-License-Identifier: Apache-2.0
// Memory that calls share, and snapshots of device buffers: on a runtime that the host plays.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "verify/candidates/cuda/arena.h"
#include "verify/candidates/cuda/snapshot.h"
#include "verify/tests/gpu/runtime_on_host.h"

namespace fljsd {
namespace {

using host_runtime::state;
using Extent = DeviceBuffer::Extent;

class CallMemoryTest : public testing::Test {
 protected:
  void SetUp() override { host_runtime::restart(); }
  // Catches: memory that is not freed, freed twice, or given to the other kind's function.
  void TearDown() override {
    EXPECT_EQ(state().count_alive(), 0);
    EXPECT_EQ(state().bad_frees, 0);
  }
};

std::vector<std::byte> bytes(std::size_t size, int first) {
  std::vector<std::byte> sequence(size);
  for (std::size_t i = 0; i < size; ++i)
    sequence[i] = static_cast<std::byte>(static_cast<std::size_t>(first) + i);
  return sequence;
}

// Catches: pieces that overlap or are short of their last bytes, pieces at other addresses than multiples of
// 256, and a larger arena that moves what it gave out. The sizes end at, before and past such multiples; the
// last one does not fit into any first block.
TEST_F(CallMemoryTest, PiecesAreApartAndStay) {
  for (const Arena::Where where : {Arena::Where::device, Arena::Where::pinned_host}) {
    const std::vector<std::size_t> sizes = {1, 255, 256, 257, 4096, 0, 3, std::size_t{200} << 20, 1};
    Arena arena(where);
    std::vector<std::byte*> pieces;
    for (const std::size_t size : sizes) {
      pieces.push_back(arena.take(size));
      ASSERT_NE(pieces.back(), nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pieces.back()) % 256, 0u);
    }
    const auto ends = [](std::size_t size) {
      return std::min<std::size_t>(size, 5000);
    };  // not all of 200 MB
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::memset(pieces[i], static_cast<int>(i) + 1, ends(sizes[i]));
      std::memset(pieces[i] + sizes[i] - ends(sizes[i]), static_cast<int>(i) + 1, ends(sizes[i]));
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == 0) continue;
      EXPECT_EQ(pieces[i][0], static_cast<std::byte>(i + 1)) << i;
      EXPECT_EQ(pieces[i][sizes[i] - 1], static_cast<std::byte>(i + 1)) << i;
    }
  }
}

// Catches: an arena that allocates in every call, which is the time it is there to save, or that grows from
// call to call. After the first call there is one block for all of it.
TEST_F(CallMemoryTest, TheSameCallAllocatesOnce) {
  Arena arena(Arena::Where::device);
  const auto call = [&] {
    for (const std::size_t size : {100, 130 << 20, 7, 140 << 20}) arena.take(size);
    arena.reset();
  };
  call();
  const std::size_t allocations = state().allocations.size(), size = state().bytes_alive();
  EXPECT_EQ(state().count_alive(), 1);
  for (int i = 0; i < 3; ++i) call();
  EXPECT_EQ(state().allocations.size(), allocations);
  EXPECT_EQ(state().bytes_alive(), size);
  arena.take(std::size_t{300} << 20);  // a larger call: its own size, not that of all calls together
  arena.reset();
  EXPECT_EQ(state().bytes_alive(), std::size_t{300} << 20);
}

// Catches: pieces of the call before that are given out again while in use, for want of starting at the front
// only after reset().
TEST_F(CallMemoryTest, ResetStartsAtTheFront) {
  Arena arena(Arena::Where::pinned_host);
  std::byte* const first = arena.take(10);
  EXPECT_NE(arena.take(10), first);
  arena.reset();
  EXPECT_EQ(arena.take(10), first);
}

// Catches: an arena that hands out null, or no longer works, once the device was out of memory; and a
// sentence that does not say so.
TEST_F(CallMemoryTest, OutOfMemoryIsSaidAndSurvived) {
  Arena arena(Arena::Where::device);
  arena.take(100);
  state().most_memory = std::size_t{1} << 30;
  try {
    arena.take(std::size_t{2} << 30);
    ADD_FAILURE() << "There is more memory than there is.";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("cudaErrorMemoryAllocation"), std::string::npos) << error.what();
  }
  EXPECT_NE(arena.take(100), nullptr);
  arena.reset();
  EXPECT_NE(arena.take(100), nullptr);
}

// Catches: memory that is freed, or given out again, while the device still works on it.
TEST_F(CallMemoryTest, ResetWaitsFirst) {
  CallMemory memory;
  std::byte* const small = memory.device.take(100);
  memory.device.take(std::size_t{200} << 20);  // a second block: reset() frees both
  check_cuda(cudaMemsetAsync(small, 1, 100, nullptr));
  memory.reset();
  EXPECT_EQ(state().waits, 1);
  EXPECT_EQ(state().frees_with_work_left, 0);
}

// Buffers of a snapshot: sizes and offsets at which the image of the next one starts at odd places.
std::vector<DeviceBuffer> make_buffers(CallMemory* memory) {
  std::vector<DeviceBuffer> buffers;
  buffers.emplace_back(bytes(300, 1), 0, memory);
  buffers.emplace_back(bytes(7, 50), 6, memory);
  buffers.emplace_back(bytes(0, 0), 2, memory);
  buffers.emplace_back(bytes(1000, 90), 254, memory);
  return buffers;
}

// Catches: parts of a snapshot that lie elsewhere than they are looked for; copies of which the end was not
// waited for; a copy of host bytes that is not made before they are gone.
TEST_F(CallMemoryTest, SnapshotHoldsTheContents) {
  CallMemory shared;
  for (CallMemory* memory : {static_cast<CallMemory*>(nullptr), &shared}) {
    const std::vector<DeviceBuffer> buffers = make_buffers(memory);
    const std::vector<std::byte> expected[] = {bytes(300, 1), bytes(7, 50), {}, bytes(1000, 90)};
    Snapshot snapshot;
    for (const std::size_t i : {2, 0, 3, 1}) snapshot.add(buffers[i]);
    snapshot.take(memory);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const std::byte* const contents = snapshot.contents(buffers[i]);
      EXPECT_TRUE(std::equal(expected[i].begin(), expected[i].end(), contents)) << i;
      EXPECT_TRUE(snapshot.is_intact(buffers[i])) << i;
    }
  }
}

// Catches: a guard byte that nobody looks at, before or after a buffer, next to it or far from it; guards
// that are looked for in the wrong place where some buffers are copied without their contents; a wrong buffer
// blamed.
TEST_F(CallMemoryTest, SnapshotSeesEveryByteBesideABuffer) {
  CallMemory memory;
  std::vector<DeviceBuffer> buffers = make_buffers(&memory);
  const std::size_t offsets[] = {0, 6, 2, 254};
  for (const Extent even : {Extent::guards, Extent::everything}) {
    const Extent odd = even == Extent::guards ? Extent::everything : Extent::guards;
    for (std::size_t touched = 0; touched < buffers.size(); ++touched) {
      std::byte* const first = buffers[touched].get();
      std::byte* const end = first + buffers[touched].size();
      for (std::byte* const beside : {first - 256 - offsets[touched], first - 1, end, end + 255}) {
        check_cuda(cudaDeviceSynchronize());
        const std::byte before = *beside;
        *beside ^= std::byte{1};
        Snapshot snapshot;
        for (std::size_t i = 0; i < buffers.size(); ++i) snapshot.add(buffers[i], i % 2 == 0 ? even : odd);
        snapshot.take(&memory);
        for (std::size_t i = 0; i < buffers.size(); ++i)
          EXPECT_EQ(snapshot.is_intact(buffers[i]), i != touched) << i << ", written beside " << touched;
        *beside = before;
      }
    }
  }
}

// Catches: a snapshot that changes with the buffer, or with the snapshot after it.
TEST_F(CallMemoryTest, SnapshotIsOfOneMoment) {
  CallMemory shared;
  for (CallMemory* memory : {static_cast<CallMemory*>(nullptr), &shared}) {
    DeviceBuffer buffer(bytes(20, 1), 0, memory);
    Snapshot before, after;
    before.add(buffer);
    before.take(memory);
    buffer.fill(9);
    after.add(buffer);
    after.take(memory);
    EXPECT_EQ(before.contents(buffer)[19], std::byte{20});
    EXPECT_EQ(after.contents(buffer)[19], std::byte{9});
  }
}

}  // namespace
}  // namespace fljsd
