// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/cuda/rank_team.h"

#include <array>
#include <cstdlib>
#include <exception>
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

}  // namespace

int count_gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

int most_ranks() {
  const int gpus = count_gpus();
  return gpus > 0 && std::getenv("FLJSD_RANKS_SHARE_GPUS") != nullptr ? 64 : gpus;
}

RankTeam::RankTeam(const RankGrid& grid, std::int64_t timeout_ms)
    : grid_(grid),
      timeout_ms_(timeout_ms),
      vocab_(static_cast<std::size_t>(grid.ranks()), nullptr),
      tokens_(static_cast<std::size_t>(grid.ranks()), nullptr) {
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

void RankTeam::run(const std::function<void(int rank)>& body) const {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(grid_.ranks()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < grid_.ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        if (cudaSetDevice(rank % count_gpus()) != cudaSuccess)
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
