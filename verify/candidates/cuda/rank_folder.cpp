// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/cuda/rank_folder.h"

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

namespace fljsd {
namespace {

// The number that an environment variable holds, in [least, most].
int number(const char* variable, int least, int most) {
  const char* text = std::getenv(variable);
  char* end = nullptr;
  const long value = text == nullptr ? 0 : std::strtol(text, &end, 10);
  if (text != nullptr && end != text && *end == '\0' && value >= least && value <= most)
    return static_cast<int>(value);
  throw std::runtime_error(std::string(variable) + " is '" + (text == nullptr ? "" : text) +
                           "', but it must be a number in [" + std::to_string(least) + ", " +
                           std::to_string(most) + "].");
}

Bytes read(const std::filesystem::path& path) {
  Bytes bytes(std::filesystem::file_size(path));
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size())))
    throw std::runtime_error(path.string() + " cannot be read.");
  return bytes;
}

void write(const std::filesystem::path& path, const Bytes& bytes) {
  // Renamed when complete: whoever sees the name finds all of it.
  const std::filesystem::path part = path.string() + ".part";
  std::ofstream file(part, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw std::runtime_error(part.string() + " cannot be written.");
  std::filesystem::rename(part, path);
}

}  // namespace

std::optional<RankFolder> RankFolder::of_environment() {
  const char* folder = std::getenv("FLJSD_RANK_FOLDER");
  if (folder == nullptr) return std::nullopt;
  const int ranks = number("FLJSD_RANKS", 1, 1024);
  return RankFolder(folder, number("FLJSD_RANK", 0, ranks - 1), ranks);
}

RankFolder::RankFolder(std::filesystem::path folder, int rank, int ranks)
    : folder_(std::move(folder)), rank_(rank), ranks_(ranks) {}

std::filesystem::path RankFolder::file_of(long meeting, int rank) const {
  return folder_ / (std::to_string(meeting) + "-" + std::to_string(rank));
}

std::vector<Bytes> RankFolder::gather(const Bytes& mine, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  const long meeting = meetings_++;
  write(file_of(meeting, rank_), mine);
  std::vector<Bytes> all;
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::filesystem::path file = file_of(meeting, rank);
    while (!std::filesystem::exists(file)) {
      if (std::chrono::steady_clock::now() >= end) {
        throw std::runtime_error("Rank " + std::to_string(rank) + " did not come to meeting " +
                                 std::to_string(meeting) + " within " + std::to_string(limit.count()) +
                                 " ms.");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    all.push_back(read(file));
  }
  // Everybody is here, so everybody has read what was left at the meeting before this one.
  if (meeting > 0) std::filesystem::remove(file_of(meeting - 1, rank_));
  return all;
}

}  // namespace fljsd
