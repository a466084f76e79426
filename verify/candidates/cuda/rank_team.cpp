// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/cuda/rank_team.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include <cuda_runtime_api.h>

namespace fljsd {
namespace {

void check_call(fljsd_status status) {
  if (status != FLJSD_OK) throw std::runtime_error(fljsd_last_error());
}

using Id = std::array<char, FLJSD_COMMUNICATOR_ID_BYTES>;

// The processes that the ranks of every team are, if they are.
std::optional<RankFolder>& processes() {
  static std::optional<RankFolder> folder = RankFolder::of_environment();
  return folder;
}

}  // namespace

int count_gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

int ranks_that_share() {
  const char* text = std::getenv("FLJSD_RANKS_SHARE_A_GPU");
  if (text == nullptr) return 0;
  char* end = nullptr;
  const long ranks = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || ranks < 2 || ranks > most_ranks_that_share) {
    throw std::runtime_error("FLJSD_RANKS_SHARE_A_GPU is '" + std::string(text) +
                             "', but it must be a number of ranks in [2, " +
                             std::to_string(most_ranks_that_share) + "].");
  }
  return static_cast<int>(ranks);
}

int most_ranks() {
  const int gpus = count_gpus();
  return gpus > 0 && ranks_that_share() > 0 ? most_ranks_that_share : gpus;
}

RankTeam::RankTeam(const RankGrid& grid, std::int64_t timeout_ms)
    : grid_(grid),
      timeout_ms_(timeout_ms),
      vocab_(static_cast<std::size_t>(grid.ranks()), nullptr),
      tokens_(static_cast<std::size_t>(grid.ranks()), nullptr) {
  if (is_processes() && processes()->ranks() != grid.ranks()) {
    throw std::runtime_error("FLJSD_RANKS is " + std::to_string(processes()->ranks()) + ", but there are " +
                             std::to_string(grid.ranks()) + " ranks.");
  }
  const bool cut_vocab = grid.vocab > 1 || grid.communicates_alone;
  const bool cut_tokens = grid.tokens > 1 || grid.communicates_alone;
  if (cut_vocab || cut_tokens) check_call(fljsd_distributed_available(nullptr));
  if (most_ranks() < grid.ranks()) {
    throw std::runtime_error(std::to_string(grid.ranks()) + " ranks need as many GPUs, but there " +
                             (count_gpus() == 1 ? "is 1." : "are " + std::to_string(count_gpus()) + "."));
  }
  std::vector<Id> vocab_ids(static_cast<std::size_t>(grid.tokens)),
      token_ids(static_cast<std::size_t>(grid.vocab));
  for (Id& id : vocab_ids)
    if (cut_vocab) check_call(fljsd_communicator_id(id.data()));
  for (Id& id : token_ids)
    if (cut_tokens) check_call(fljsd_communicator_id(id.data()));
  if (is_processes()) {  // everybody made ids; those of rank 0 count
    for (std::vector<Id>* ids : {&vocab_ids, &token_ids}) {
      std::vector<Bytes> told(static_cast<std::size_t>(grid.ranks()));
      const auto* made = reinterpret_cast<const std::byte*>(ids->data());
      told[static_cast<std::size_t>(local_ranks().front())] = {made, made + ids->size() * sizeof(Id)};
      tell(told);
      std::memcpy(ids->data(), told[0].data(), ids->size() * sizeof(Id));
    }
  }
  run([&](int rank) {
    const int shard = rank % grid_.vocab, part = rank / grid_.vocab;
    const auto r = static_cast<std::size_t>(rank);
    if (cut_vocab) {
      check_call(fljsd_communicator_create(vocab_ids[static_cast<std::size_t>(part)].data(), grid_.vocab,
                                           shard, timeout_ms_, &vocab_[r]));
    }
    if (cut_tokens) {
      check_call(fljsd_communicator_create(token_ids[static_cast<std::size_t>(shard)].data(), grid_.tokens,
                                           part, timeout_ms_, &tokens_[r]));
    }
  });
}

RankTeam::~RankTeam() {
  try {
    run([&](int rank) {  // together: finalising waits for the peers
      fljsd_communicator_destroy(vocab_[static_cast<std::size_t>(rank)]);
      fljsd_communicator_destroy(tokens_[static_cast<std::size_t>(rank)]);
    });
  } catch (const std::exception&) {  // no thread or no device: the process is about to end
  }
}

fljsd_ranks RankTeam::ranks_of(int rank) const {
  fljsd_ranks ranks{};
  ranks.struct_size = sizeof ranks;
  ranks.vocab = vocab_[static_cast<std::size_t>(rank)];
  ranks.tokens = tokens_[static_cast<std::size_t>(rank)];
  return ranks;
}

bool RankTeam::is_processes() const {
  return processes().has_value() && grid_.ranks() > 1;
}

std::vector<int> RankTeam::local_ranks() const {
  if (is_processes()) return {processes()->rank()};
  std::vector<int> all(static_cast<std::size_t>(grid_.ranks()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void RankTeam::tell(std::vector<Bytes>& of_rank) const {
  if (is_processes())
    of_rank = processes()->gather(of_rank[static_cast<std::size_t>(processes()->rank())],
                                  std::chrono::milliseconds(timeout_ms_));
}

void RankTeam::run(const std::function<void(int rank)>& body) const {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(grid_.ranks()));
  std::vector<std::thread> threads;
  for (const int rank : local_ranks()) {
    threads.emplace_back([&, rank] {
      try {
        if (cudaSetDevice(ranks_that_share() > 0 ? 0 : rank) != cudaSuccess)
          throw std::runtime_error("GPU " + std::to_string(rank) + " cannot be used.");
        body(rank);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace fljsd
