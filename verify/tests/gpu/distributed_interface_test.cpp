// SPDX-License-Identifier: Apache-2.0
// What the interface for several GPUs refuses; no device and no NCCL needed.
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "cuda/fljsd_distributed.h"

namespace fljsd {
namespace {

class DistributedInterface : public testing::Test {
 protected:
  // A build without NCCL's header has one sentence for everything.
  void SetUp() override {
    if (fljsd_communicator_abort(nullptr) == FLJSD_UNSUPPORTED) GTEST_SKIP() << fljsd_last_error();
  }
  static std::string error() { return fljsd_last_error(); }

  char id_[FLJSD_COMMUNICATOR_ID_BYTES] = {};
  fljsd_communicator* communicator_ = nullptr;
};

// Fault: an argument is used before it is checked, or the sentence does not name it.
TEST_F(DistributedInterface, NamesWhatIsWrong) {
  EXPECT_EQ(fljsd_communicator_create(id_, 0, 0, 1000, &communicator_), FLJSD_INVALID_ARGUMENT);
  EXPECT_EQ(error(), "ranks is 0, but it must be 1 or more.");
  EXPECT_EQ(fljsd_communicator_create(id_, 2, 2, 1000, &communicator_), FLJSD_INVALID_ARGUMENT);
  EXPECT_EQ(error(), "rank is 2, but it must be in [0, 1].");
  EXPECT_EQ(fljsd_communicator_create(id_, 2, 0, 0, &communicator_), FLJSD_INVALID_ARGUMENT);
  EXPECT_EQ(error(), "timeout_ms is 0, but it must be in [1, 604800000].");
  EXPECT_EQ(fljsd_communicator_create(nullptr, 2, 0, 1000, &communicator_), FLJSD_INVALID_ARGUMENT);
  EXPECT_EQ(error(), "id is null, but it is required.");
  EXPECT_EQ(fljsd_communicator_create(id_, 2, 0, 1000, nullptr), FLJSD_INVALID_ARGUMENT);
  EXPECT_EQ(fljsd_communicator_adopt(nullptr, 1000, &communicator_), FLJSD_INVALID_ARGUMENT);
  EXPECT_EQ(error(), "nccl_comm is null, but it is required.");
  EXPECT_EQ(fljsd_communicator_id(nullptr), FLJSD_INVALID_ARGUMENT);
  EXPECT_EQ(communicator_, nullptr);

  fljsd_config config;
  ASSERT_EQ(fljsd_config_init(&config, sizeof config), FLJSD_OK);
  fljsd_plan* plan = nullptr;
  EXPECT_EQ(fljsd_plan_create_distributed(&config, nullptr, &plan), FLJSD_INVALID_ARGUMENT);
  EXPECT_EQ(error(), "ranks is null, but it is required.");
  fljsd_ranks ranks{};
  ranks.struct_size = 4096;
  EXPECT_EQ(fljsd_plan_create_distributed(&config, &ranks, &plan), FLJSD_INVALID_ARGUMENT);
  EXPECT_EQ(
      error(),
      "ranks->struct_size is 4096, but it must be the structure's size, at most 32 in this version of the "
      "library.");
  ranks.struct_size = sizeof ranks;
  config.vocab = 0;
  EXPECT_EQ(fljsd_plan_create_distributed(&config, &ranks, &plan), FLJSD_INVALID_ARGUMENT);
  EXPECT_EQ(error(), "vocab is 0, but it must be in [1, 1073741824].");
  EXPECT_EQ(plan, nullptr);
  EXPECT_EQ(fljsd_plan_wait(nullptr, nullptr, 1000), FLJSD_INVALID_ARGUMENT);
  std::uint64_t bytes = 0;
  EXPECT_EQ(fljsd_plan_exchanged_bytes(nullptr, FLJSD_FORWARD, &bytes), FLJSD_INVALID_ARGUMENT);
  fljsd_communicator_destroy(nullptr);
}

// Fault: a missing NCCL that ends the process, or is not named.
TEST_F(DistributedInterface, SaysWhetherThereIsNccl) {
  std::int32_t version = 0;
  if (fljsd_distributed_available(&version) == FLJSD_OK) {
    EXPECT_GE(version, 21400);
  } else {
    EXPECT_NE(error().find("libnccl.so.2"), std::string::npos) << error();
  }
}

}  // namespace
}  // namespace fljsd
