// SPDX-License-Identifier: Apache-2.0
// Runs the tests if there is a CUDA device that the stages support; otherwise says why not, in one line.
#include <cstdio>

#include <gtest/gtest.h>

#include "cuda/fljsd.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (fljsd_stage_available("unfused", -1) != FLJSD_OK) {
    std::printf("SKIPPED: %s\n", fljsd_last_error());
    return 0;
  }
  return RUN_ALL_TESTS();
}
