// SPDX-License-Identifier: Apache-2.0
// Communicators, and the stand-in for NCCL that lets all ranks share a GPU, without a GPU: a thread for each
// rank, on streams that the host plays in a random order.
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/communicator.h"
#include "cuda/rank_agreement.h"
#include "verify/tests/gpu/streams_on_host.h"

namespace fljsd::cuda {
namespace {

constexpr TimeLimit long_enough{60'000};

ncclUniqueId new_id() {
  ncclUniqueId id;
  EXPECT_EQ(nccl().get_unique_id(&id), ncclSuccess);
  return id;
}

// Calls body(rank) on a thread of every rank; the sentence of the Failure that each ended with, if it did.
std::vector<std::string> on_ranks(int ranks, const std::function<void(int)>& body) {
  std::vector<std::string> sentences(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const Failure& failure) {
        sentences[static_cast<std::size_t>(rank)] = failure.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return sentences;
}

// Two ranks, of which the first aborts once both have communicators; the second then calls `next` with its
// own. As on_ranks().
std::vector<std::string> after_an_abort(const std::function<void(const Communicator&)>& next) {
  const ncclUniqueId id = new_id();
  std::atomic<int> made = 0;
  std::atomic<bool> aborted = false;
  return on_ranks(2, [&](int rank) {
    const auto communicator = Communicator::create(id, 2, rank, long_enough);
    ++made;
    if (rank == 0) {
      while (made < 2) std::this_thread::yield();
      communicator->abort();
      aborted = true;
      return;
    }
    while (!aborted) std::this_thread::yield();
    next(*communicator);
  });
}

class Stream {
 public:
  Stream() { cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class CommunicatorOnHost : public testing::Test {
 protected:
  void TearDown() override {
    host_streams::refuse_copies_after(-1);
    EXPECT_EQ(host_streams::count_alive(), 0);
  }
};

// Fault: parts in another order; a part that is read before its rank's stream has written it, or after the
// rank's stream has gone on and written something else; a result that is used before it is there.
TEST_F(CommunicatorOnHost, GathersInRankOrderAndInTheOrderOfTheStreams) {
  for (const int ranks : {1, 2, 3, 8}) {
    for (unsigned seed = 1; seed <= 5; ++seed) {
      host_streams::set_seed(seed);
      const ncclUniqueId id = new_id();
      const auto sentences = on_ranks(ranks, [&](int rank) {
        const auto communicator = Communicator::create(id, ranks, rank, long_enough);
        const Stream stream;
        constexpr int rounds = 4;
        int mine = -1;
        std::vector<int> all(static_cast<std::size_t>(ranks), -1);
        std::vector<std::vector<int>> seen;
        for (int round = 0; round < rounds; ++round) {
          host_streams::enqueue(stream.get(), [&mine, round, rank] { mine = 100 * round + rank; });
          communicator->all_gather(&mine, all.data(), sizeof mine, stream.get());
          host_streams::enqueue(stream.get(), [&] { seen.push_back(all); });
        }
        wait_for(stream.get(), {communicator.get(), nullptr}, long_enough);
        ASSERT_EQ(seen.size(), static_cast<std::size_t>(rounds));
        for (int round = 0; round < rounds; ++round) {
          for (int r = 0; r < ranks; ++r)
            EXPECT_EQ(seen[static_cast<std::size_t>(round)][static_cast<std::size_t>(r)], 100 * round + r);
        }
      });
      for (const std::string& sentence : sentences) EXPECT_EQ(sentence, "");
    }
  }
}

// Fault: a sum in the order in which ranks arrive, so that two runs have other bits; a part that is
// overwritten in place before everybody has read it. (2^30 + 1) - 2^30 is 0 in fp32, in rank order only.
TEST_F(CommunicatorOnHost, SumsInRankOrderInPlace) {
  constexpr float parts[] = {0x1p30f, 1, -0x1p30f};
  for (unsigned seed = 1; seed <= 5; ++seed) {
    host_streams::set_seed(seed);
    const ncclUniqueId id = new_id();
    on_ranks(3, [&](int rank) {
      const auto communicator = Communicator::create(id, 3, rank, long_enough);
      const Stream stream;
      for (const std::size_t count : {1, 50, 3}) {
        std::vector<float> data(count, parts[rank]);
        communicator->all_reduce_sum(data.data(), static_cast<Index>(count), stream.get());
        wait_for(stream.get(), {communicator.get()}, long_enough);
        EXPECT_EQ(data, std::vector<float>(count, 0.0f));
      }
    });
  }
}

// Fault: terms of one rank taken for another's; a difference that only some ranks hear of; a group whose
// members wait after one has refused.
TEST_F(CommunicatorOnHost, ComparesTerms) {
  const ncclUniqueId id = new_id();
  on_ranks(3, [&](int rank) {
    const auto communicator = Communicator::create(id, 3, rank, long_enough);
    const auto sentence = [&](const std::vector<Term>& terms, bool refused) -> std::string {
      try {
        agree(*communicator, "vocabulary", terms, refused);
      } catch (const Failure& failure) {
        EXPECT_EQ(failure.status(), FLJSD_INVALID_ARGUMENT);
        return failure.what();
      }
      return "";
    };
    const std::vector<std::int64_t> told =
        agree(*communicator, "vocabulary", {Term::told("rows", 7 + rank)}, false);
    EXPECT_EQ(told, (std::vector<std::int64_t>{7, 8, 9}));
    EXPECT_EQ(
        sentence({Term::same("tokens", std::int64_t{5}), Term::same("beta", rank == 2 ? 0.25 : 0.5)}, false),
        "beta must be the same on all ranks of the vocabulary group, but rank 0 has 0.5 and rank 2 has "
        "0.25.");
    EXPECT_EQ(sentence({}, rank == 1),
              rank == 1 ? "" : "Rank 1 of the vocabulary group refused its configuration.");
  });
}

// Fault: a rank that never comes leaves the others waiting for ever.
TEST_F(CommunicatorOnHost, EndsWithoutARank) {
  const ncclUniqueId id = new_id();
  EXPECT_EQ(on_ranks(1, [&](int) { Communicator::create(id, 2, 0, TimeLimit(20)); })[0],
            "A rank did not come within 20 ms while creating a communicator; the communicator was aborted.");
  // Both ends are made here, so that only the call has to be waited for.
  const ncclUniqueId other = new_id();
  ncclComm_t ends[2];
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(nccl().comm_init_rank_config(&ends[rank], 2, other, rank, nullptr), ncclInProgress);
  const auto communicator = Communicator::adopt(ends[0], TimeLimit(20));
  const Stream stream;
  int mine = 0, all[2];
  const auto gather = [&](int) { communicator->all_gather(&mine, all, sizeof mine, stream.get()); };
  EXPECT_EQ(on_ranks(1, gather)[0],
            "A rank did not come within 20 ms while gathering from all ranks; the communicator was aborted.");
  EXPECT_EQ(on_ranks(1, gather)[0],
            "The communicator was aborted, and can only be destroyed; make new ones on all ranks.");
  EXPECT_EQ(nccl().comm_destroy(ends[1]), ncclSuccess);
}

// Fault: what happened on a machine with two GPUs. A rank that cannot take part fails alone, and the others
// wait for their time limit.
TEST_F(CommunicatorOnHost, TellsAllRanksThatTheyDoNotShareAGpu) {
  const ncclUniqueId id = new_id();
  const auto sentences = on_ranks(3, [&](int rank) {
    host_streams::use_device(rank % 2);
    Communicator::create(id, 3, rank, long_enough);
  });
  for (const std::string& sentence : sentences) {
    EXPECT_EQ(sentence,
              "NCCL reported 'all ranks must share one GPU and agree on their number' while creating a "
              "communicator.");
  }
}
TEST_F(CommunicatorOnHost, TellsAllRanksOfACopyThatFailed) {
  const ncclUniqueId id = new_id();
  std::atomic<int> ready = 0;
  const auto sentences = on_ranks(3, [&](int rank) {
    const auto communicator = Communicator::create(id, 3, rank, long_enough);
    const Stream stream;
    int mine = rank, all[3];
    if (++ready == 3) host_streams::refuse_copies_after(4);
    while (ready < 3) std::this_thread::yield();
    communicator->all_gather(&mine, all, sizeof mine, stream.get());
  });
  int copies = 0;
  for (const std::string& sentence : sentences) {
    copies += sentence == "NCCL reported 'CUDA error' while gathering from all ranks.";
    EXPECT_NE(sentence, "");
  }
  EXPECT_EQ(copies, 3);
}

TEST_F(CommunicatorOnHost, TellsAllRanksThatOneAborted) {
  const auto sentences = after_an_abort([](const Communicator& communicator) {
    const Stream stream;
    int mine = 0, all[2];
    communicator.all_gather(&mine, all, sizeof mine, stream.get());
  });
  EXPECT_EQ(sentences[1], "NCCL reported 'another rank aborted' while exchanging with other ranks.");
}

// Fault: a communicator that another thread's abort() has freed is asked how its call goes on; or the call
// goes on waiting.
TEST_F(CommunicatorOnHost, AbortFromAnotherThreadEndsACall) {
  const ncclUniqueId id = new_id();
  std::atomic<bool> begun = false;
  std::string caller;
  on_ranks(2, [&](int rank) {
    const auto communicator = Communicator::create(id, 2, rank, long_enough);
    if (rank == 1) {  // stays, and does not come
      while (!begun) std::this_thread::yield();
      return;
    }
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      communicator->abort();
      begun = true;
    });
    const Stream stream;
    int mine = 0, all[2];
    try {
      communicator->all_gather(&mine, all, sizeof mine, stream.get());
    } catch (const Failure& failure) {
      caller = failure.what();
    }
    other.join();
  });
  EXPECT_EQ(caller, "The communicator was aborted, and can only be destroyed; make new ones on all ranks.");
}

// Fault: work that an abort has ended is taken for work that is done.
TEST_F(CommunicatorOnHost, WhatAnAbortEndedIsNotDone) {
  const ncclUniqueId ids[] = {new_id(), new_id()};
  const auto sentences = on_ranks(1, [&](int) {
    const auto one = Communicator::create(ids[0], 1, 0, long_enough);
    const auto other = Communicator::create(ids[1], 1, 0, long_enough);
    const Stream stream;
    wait_for(stream.get(), {one.get(), nullptr, other.get()}, long_enough);
    one->abort();
    try {
      wait_for(stream.get(), {one.get(), nullptr, other.get()}, long_enough);
      ADD_FAILURE() << "done";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.status(), FLJSD_COMMUNICATION_ERROR);
    }
    other->check_health();
  });
  EXPECT_EQ(sentences[0],
            "The communicator was aborted, and can only be destroyed; make new ones on all ranks.");
}

// Fault: an error that NCCL reports leaves its kernels on the GPU, for which cudaFree() then waits for ever.
TEST_F(CommunicatorOnHost, AnErrorAborts) {
  after_an_abort([](const Communicator& communicator) {
    EXPECT_THROW(communicator.check_health(), Failure);
    EXPECT_THROW(communicator.check_not_aborted(), Failure);
  });
}

}  // namespace
}  // namespace fljsd::cuda
