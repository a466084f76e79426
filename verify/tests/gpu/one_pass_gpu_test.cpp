// SPDX-License-Identifier: Apache-2.0
// The one-pass statistics over several tiles. Once a row has references its sweep trusts that logits are
// finite and not far above them, and looks afterwards: here they are not, in a tile that is trusted.
#include <limits>

#include <gtest/gtest.h>

#include "verify/tests/gpu/gpu_case.h"

namespace fljsd::testing {
namespace {

constexpr Index tile = 768, first_late = 2 * tile + 300;

void small_tiles(fljsd_config& config) {
  config.chunk_vocab = tile;
  config.gradient_chunk_vocab = tile;
}

Recipe several_tiles() {
  Recipe r;
  r.tokens = 9, r.vocab = 5 * tile + 77;
  return r;
}

// Multiplies the weights of late entries by a power of two: products stay exact.
void raise_late(HostMatrix& weight, double factor) {
  for (Index v = first_late; v < weight.rows; ++v) {
    for (Index h = 0; h < weight.cols; ++h) weight.set(v, h, factor * weight.at(v, h));
  }
}

// Catches sums that overflowed and were kept, references that were raised without going back, and entries
// counted twice or lost on the way back. 4: trust is kept; 8: sums pass the limit and stay finite; more: they
// are infinite.
TEST(OnePassSweep, LogitsFarAboveAllEarlierOnes) {
  for (const double factor : {4.0, 8.0, 32.0, 1024.0}) {
    for (const int which : {1, 2, 3}) {
      HostCase host = make_case(several_tiles());
      if ((which & 1) != 0) raise_late(host.student_weight, factor);
      if ((which & 2) != 0) raise_late(host.teacher_weight, factor);
      for (const bool gradients : {false, true}) {
        DeviceCase device(host, "chunked-vocab", gradients, small_tiles);
        const StageResult result = device.run();
        expect_close(result, host, "chunked-vocab");
        EXPECT_TRUE(result.same_bits(device.run(0x3f))) << device.name() << ": the second run differs";
      }
    }
  }
}

// Catches 0 · e^{i∞}: an impossible entry in a trusted tile. Losses only: its weight makes gradients NaN for
// everybody.
TEST(OnePassSweep, ImpossibleEntriesWithoutABias) {
  for (const int which : {1, 2, 3}) {
    HostCase host = make_case(several_tiles());
    const auto exclude = [&](HostMatrix& input, HostMatrix& weight) {
      for (Index t = 0; t < input.rows; ++t) input.set(t, 0, 1);
      for (Index v = first_late; v < weight.rows; v += 41)
        weight.set(v, 0, -std::numeric_limits<double>::infinity());
    };
    if ((which & 1) != 0) exclude(host.student_input, host.student_weight);
    if ((which & 2) != 0) exclude(host.teacher_input, host.teacher_weight);
    DeviceCase device(host, "chunked-vocab", false, small_tiles);
    expect_close(device.run(), host, "chunked-vocab");
  }
}

// Catches a check that NaN passes.
TEST(OnePassSweep, NotANumberInATrustedTile) {
  for (const bool student : {true, false}) {
    HostCase host = make_case(several_tiles());
    (student ? host.student_weight : host.teacher_weight)
        .set(first_late, 0, std::numeric_limits<double>::quiet_NaN());
    DeviceCase device(host, "chunked-vocab", false, small_tiles);
    for (const float loss : device.run().token_loss) EXPECT_TRUE(loss != loss);
  }
}

}  // namespace
}  // namespace fljsd::testing
