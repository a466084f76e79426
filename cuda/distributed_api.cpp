// SPDX-License-Identifier: Apache-2.0
// The C interface of fljsd_distributed.h.
#include "cuda/fljsd_distributed.h"

#include <cstring>

#include "cuda/distributed.h"
#include "cuda/plan.h"

using namespace fljsd::cuda;

struct fljsd_communicator {
  std::unique_ptr<Communicator> communicator;
};

namespace {

TimeLimit check_timeout(int64_t timeout_ms) {
  constexpr std::int64_t most = std::int64_t{7} * 24 * 3600 * 1000;
  if (timeout_ms < 1 || timeout_ms > most)
    fail(FLJSD_INVALID_ARGUMENT, "timeout_ms is ", timeout_ms, ", but it must be in [1, ", most, "].");
  return TimeLimit(timeout_ms);
}

// The stage of a distributed plan, or null.
const Distributed* distributed(const fljsd_plan& plan) {
  return dynamic_cast<const Distributed*>(plan.stage.get());
}

const Communicator* communicator_of(const fljsd_communicator* handle) {
  return handle == nullptr ? nullptr : handle->communicator.get();
}

// The stage of the plan whose settings are known, or why there is none.
std::optional<Failure> make_part(fljsd_plan& plan, const RankGroups& groups) {
  try {
    require_current_device(plan.settings);
    plan.stage = std::make_unique<Distributed>(plan.settings, groups);
    plan.describe();
    return std::nullopt;
  } catch (const Failure& failure) {
    return failure;
  } catch (const std::exception& error) {
    return Failure(FLJSD_CUDA_ERROR, error.what());
  }
}

}  // namespace

fljsd_status fljsd_distributed_available(int32_t* version) {
  return guard([&] {
    int found = 0;
    nccl().get_version(&found);
    if (version != nullptr) *version = found;
  });
}

fljsd_status fljsd_communicator_id(void* id) {
  static_assert(FLJSD_COMMUNICATOR_ID_BYTES == NCCL_UNIQUE_ID_BYTES);
  return guard([&] {
    if (id == nullptr) fail(FLJSD_INVALID_ARGUMENT, "id is null, but it is required.");
    ncclUniqueId made;
    const ncclResult_t result = nccl().get_unique_id(&made);
    if (result != ncclSuccess) {
      fail(FLJSD_COMMUNICATION_ERROR, "NCCL reported '", nccl().get_error_string(result),
           "' while making an id.");
    }
    std::memcpy(id, &made, sizeof made);
  });
}

fljsd_status fljsd_communicator_create(const void* id, int32_t ranks, int32_t rank, int64_t timeout_ms,
                                       fljsd_communicator** communicator) {
  return guard([&] {
    required("communicator", communicator);
    *communicator = nullptr;
    if (id == nullptr) fail(FLJSD_INVALID_ARGUMENT, "id is null, but it is required.");
    if (ranks < 1) fail(FLJSD_INVALID_ARGUMENT, "ranks is ", ranks, ", but it must be 1 or more.");
    if (rank < 0 || rank >= ranks)
      fail(FLJSD_INVALID_ARGUMENT, "rank is ", rank, ", but it must be in [0, ", ranks - 1, "].");
    const TimeLimit limit = check_timeout(timeout_ms);
    find_device(-1);
    check(cudaFree(nullptr), "creating the CUDA context");
    ncclUniqueId bytes;
    std::memcpy(&bytes, id, sizeof bytes);
    *communicator = new fljsd_communicator{Communicator::create(bytes, ranks, rank, limit)};
  });
}

fljsd_status fljsd_communicator_adopt(void* nccl_comm, int64_t timeout_ms,
                                      fljsd_communicator** communicator) {
  return guard([&] {
    required("communicator", communicator);
    *communicator = nullptr;
    if (nccl_comm == nullptr) fail(FLJSD_INVALID_ARGUMENT, "nccl_comm is null, but it is required.");
    *communicator = new fljsd_communicator{
        Communicator::adopt(static_cast<ncclComm_t>(nccl_comm), check_timeout(timeout_ms))};
  });
}

fljsd_status fljsd_communicator_abort(fljsd_communicator* communicator) {
  return guard([&] { required("communicator", communicator).communicator->abort(); });
}

void fljsd_communicator_destroy(fljsd_communicator* communicator) {
  delete communicator;
}

fljsd_status fljsd_plan_create_distributed(const fljsd_config* config, const fljsd_ranks* ranks,
                                           fljsd_plan** plan) {
  return guard([&] {
    required("plan", plan);
    *plan = nullptr;
    const fljsd_ranks given = read_struct("ranks", ranks);
    const RankGroups groups{communicator_of(given.vocab), communicator_of(given.tokens),
                            given.sum_weight_gradients != 0, given.tokens_compared != 0};
    auto made = std::make_unique<fljsd_plan>();
    std::optional<Failure> refusal;
    run_in_step(groups, [&] {
      for (const Communicator* c : {groups.vocab, groups.tokens})
        if (c != nullptr) c->check_health();
      made->settings = settings_of_rank(config, groups, refusal);
      // A rank that cannot make its part says so before the others count on it.
      if (!refusal) refusal = make_part(*made, groups);
      tell_refusal(groups, refusal);
    });
    if (refusal) throw Failure(*refusal);
    *plan = made.release();
  });
}

fljsd_status fljsd_plan_wait(const fljsd_plan* plan, void* stream, int64_t timeout_ms) {
  return guard([&] {
    const Distributed* stage = distributed(required("plan", plan));
    const TimeLimit limit = check_timeout(timeout_ms);
    int device = -1;
    check(cudaGetDevice(&device), "asking for the current device");
    if (device != plan->settings.device.ordinal) {  // its null stream would be another one
      fail(FLJSD_INVALID_ARGUMENT, "The plan was made for device ", plan->settings.device.ordinal,
           ", but device ", device, " is current.");
    }
    const RankGroups groups = stage == nullptr ? RankGroups{} : stage->groups();
    wait_for(static_cast<cudaStream_t>(stream), {groups.vocab, groups.tokens}, limit);
  });
}

fljsd_status fljsd_plan_exchanged_bytes(const fljsd_plan* plan, int32_t pass, uint64_t* bytes) {
  return guard([&] {
    required("bytes", bytes);
    const Distributed* stage = distributed(required("plan", plan));
    const fljsd_pass checked = check_pass(pass);
    *bytes = stage == nullptr ? 0 : static_cast<std::uint64_t>(stage->exchanged_bytes(checked));
  });
}
