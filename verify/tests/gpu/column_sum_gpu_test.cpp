// SPDX-License-Identifier: Apache-2.0
// The sums over tokens that the bias gradient is made of, compiled from their source: more tokens than a call
// of the interface would be given in a test.
#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/batch_kernels.h"
#include "verify/candidates/cuda/device_buffer.h"

namespace fljsd::cuda {
namespace {

std::vector<float> floats(const DeviceBuffer& buffer) {
  const std::vector<std::byte> bytes = buffer.to_host();
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// Catches: tokens that are left out, or a refusal in the middle of a call, where pieces of 64 tokens are more
// than the 65535 that a grid has in its second dimension. Counts below 2^24 are exact in fp32 in any order.
TEST(ColumnSum, TakesMorePiecesThanAGridHas) {
  constexpr Index columns = 8;
  for (const Index rows : {Index{1}, Index{64} * 65535, Index{64} * 65535 + 1, Index{64} * 70000 + 7}) {
    std::vector<std::byte> ones(static_cast<std::size_t>(2 * rows * columns));
    for (std::size_t i = 0; i < ones.size(); i += 2) ones[i] = std::byte{0x80}, ones[i + 1] = std::byte{0x3f};
    const DeviceBuffer dlogits(ones);
    const DeviceBuffer partial(static_cast<std::size_t>(column_sum_partials(rows) * columns) * sizeof(float));
    const DeviceBuffer sum(columns * sizeof(float));
    Dlogits given;
    given.data = dlogits.get();
    given.ld = columns;
    for (const bool accumulate : {false, true}) {
      launch_column_sum(nullptr, given, rows, columns, accumulate, partial.as<float>(), sum.as<float>());
      const float want = static_cast<float>(accumulate ? 2 * rows : rows);
      EXPECT_EQ(floats(sum), std::vector<float>(columns, want)) << rows;
    }
  }
}

}  // namespace
}  // namespace fljsd::cuda
