// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes of one machine, and meet in a folder: how bytes of host memory get from each to
// all. For tests; launchers of real programs bring their own.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <vector>

namespace fljsd {

using Bytes = std::vector<std::byte>;

class RankFolder {
 public:
  // What the environment variables FLJSD_RANK_FOLDER (empty at first, the same for all), FLJSD_RANK and
  // FLJSD_RANKS say; nothing without the first. Throws std::runtime_error, one sentence, if they are wrong.
  static std::optional<RankFolder> of_environment();

  RankFolder(std::filesystem::path folder, int rank, int ranks);
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Collective: the bytes of every rank, in rank order. Throws std::runtime_error when that takes longer than
  // the limit.
  std::vector<Bytes> gather(const Bytes& mine, std::chrono::milliseconds limit);

 private:
  std::filesystem::path file_of(long meeting, int rank) const;

  std::filesystem::path folder_;
  int rank_, ranks_;
  long meetings_ = 0;
};

}  // namespace fljsd
