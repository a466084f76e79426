// SPDX-License-Identifier: Apache-2.0
// Ranks that meet in a folder.
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "verify/candidates/cuda/rank_folder.h"
#include "verify/candidates/cuda/rank_output.h"
#include "verify/tests/subprocess.h"

namespace fljsd {
namespace {

constexpr std::chrono::milliseconds long_enough{60'000};

Bytes bytes_of(const std::string& text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

// Fault: bytes of another rank or of another meeting, half of a file, files that pile up.
TEST(RankFolder, TellsEveryRankEverything) {
  const test::TemporaryFolder folder;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      RankFolder mine(folder.path(), rank, 3);
      for (int meeting = 0; meeting < 20; ++meeting) {
        const auto said = [&](int who) {  // the first says nothing, others much
          return bytes_of(
              std::string(static_cast<std::size_t>(who * 10'000), static_cast<char>('a' + meeting)));
        };
        const std::vector<Bytes> told = mine.gather(said(rank), long_enough);
        ASSERT_EQ(told.size(), 3u);
        for (int who = 0; who < 3; ++who) EXPECT_EQ(told[static_cast<std::size_t>(who)], said(who));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++files;
  EXPECT_EQ(files, 3u);  // those of the last meeting
}

// Fault: a rank that never comes leaves the others waiting for ever.
TEST(RankFolder, EndsWithoutARank) {
  const test::TemporaryFolder folder;
  RankFolder alone(folder.path(), 0, 2);
  try {
    alone.gather({}, std::chrono::milliseconds(20));
    ADD_FAILURE();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "Rank 1 did not come to meeting 0 within 20 ms.");
  }
}

// Fault: a rank that is not one of the ranks.
TEST(RankFolder, ReadsItsEnvironment) {
  unsetenv("FLJSD_RANK_FOLDER");
  EXPECT_FALSE(RankFolder::of_environment().has_value());
  setenv("FLJSD_RANK_FOLDER", "/tmp", 1);
  setenv("FLJSD_RANKS", "2", 1);
  setenv("FLJSD_RANK", "1", 1);
  EXPECT_EQ(RankFolder::of_environment()->rank(), 1);
  EXPECT_EQ(RankFolder::of_environment()->ranks(), 2);
  setenv("FLJSD_RANK", "2", 1);
  try {
    RankFolder::of_environment();
    ADD_FAILURE();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "FLJSD_RANK is '2', but it must be a number in [0, 1].");
  }
  for (const char* variable : {"FLJSD_RANK_FOLDER", "FLJSD_RANKS", "FLJSD_RANK"}) unsetenv(variable);
}

// Fault: an output that is lost or exchanged between processes.
TEST(RankOutput, IsTheSameUnpacked) {
  const RankOutput output{bytes_of("loss"), bytes_of(""), bytes_of("of inputs"), bytes_of("w"),
                          bytes_of("bias")};
  const std::vector<std::string> violations = {"one.", "", "another."};
  RankOutput back;
  std::vector<std::string> violations_back = {"old"};
  unpack(pack(output, violations), back, violations_back);
  EXPECT_EQ(back, output);
  EXPECT_EQ(violations_back, violations);
}

}  // namespace
}  // namespace fljsd
