// SPDX-License-Identifier: Apache-2.0
// In place of distributed_api.cpp in a build without NCCL's header.
#include "cuda/fljsd_distributed.h"
#include "cuda/plan.h"

using namespace fljsd::cuda;

namespace {

fljsd_status refuse() {
  return guard([] {
    fail(FLJSD_UNSUPPORTED,
         "This library was built for one GPU: several need NCCL's header, nccl.h, when it is built.");
  });
}

}  // namespace

fljsd_status fljsd_distributed_available(int32_t*) {
  return refuse();
}
fljsd_status fljsd_communicator_id(void*) {
  return refuse();
}
fljsd_status fljsd_communicator_create(const void*, int32_t, int32_t, int64_t,
                                       fljsd_communicator** communicator) {
  if (communicator != nullptr) *communicator = nullptr;
  return refuse();
}
fljsd_status fljsd_communicator_adopt(void*, int64_t, fljsd_communicator** communicator) {
  if (communicator != nullptr) *communicator = nullptr;
  return refuse();
}
fljsd_status fljsd_communicator_abort(fljsd_communicator*) {
  return refuse();
}
void fljsd_communicator_destroy(fljsd_communicator*) {}
fljsd_status fljsd_plan_create_distributed(const fljsd_config*, const fljsd_ranks*, fljsd_plan** plan) {
  if (plan != nullptr) *plan = nullptr;
  return refuse();
}
fljsd_status fljsd_plan_wait(const fljsd_plan*, void*, int64_t) {
  return refuse();
}
fljsd_status fljsd_plan_exchanged_bytes(const fljsd_plan*, int32_t, uint64_t*) {
  return refuse();
}
