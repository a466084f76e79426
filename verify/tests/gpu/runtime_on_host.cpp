// SPDX-License-Identifier: Apache-2.0
#include "verify/tests/gpu/runtime_on_host.h"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

#include <cuda_runtime_api.h>

namespace fljsd::host_runtime {
namespace {

std::vector<std::function<void()>> enqueued;

void finish() {
  for (const auto& work : std::exchange(enqueued, {})) work();
}

cudaError_t allocate(void** to, std::size_t size, Memory memory) {
  if (size > state().most_memory - state().bytes_alive()) return cudaErrorMemoryAllocation;
  // CUDA promises multiples of 256; a larger alignment would hide arithmetic that relies on more.
  constexpr std::size_t alignment = 256;
  auto* data =
      static_cast<std::byte*>(std::aligned_alloc(alignment, (size + alignment) / alignment * alignment));
  state().allocations.push_back({data, size, memory, false});
  *to = data;
  return cudaSuccess;
}

cudaError_t release(void* data, Memory memory) {
  if (data == nullptr) return cudaSuccess;
  state().frees_with_work_left += !enqueued.empty();
  finish();  // as freeing waits for the device
  // The latest first: an address may have been given out again.
  for (auto a = state().allocations.rbegin(); a != state().allocations.rend(); ++a) {
    if (a->data != data || a->memory != memory || a->freed) continue;
    a->freed = true;
    std::free(data);
    return cudaSuccess;
  }
  ++state().bad_frees;
  return cudaErrorInvalidValue;
}

cudaError_t wait() {
  ++state().waits;
  finish();
  return cudaSuccess;
}

}  // namespace

std::size_t State::bytes_alive() const {
  std::size_t bytes = 0;
  for (const Allocation& a : allocations) bytes += a.freed ? 0 : a.size;
  return bytes;
}

int State::count_alive() const {
  int count = 0;
  for (const Allocation& a : allocations) count += !a.freed;
  return count;
}

State& state() {
  static State the_state;
  return the_state;
}

void restart() {
  enqueued.clear();
  state() = State{};
}

}  // namespace fljsd::host_runtime

namespace host = fljsd::host_runtime;

// ---- the CUDA runtime ----

extern "C" {

cudaError_t cudaMalloc(void** data, std::size_t size) {
  return host::allocate(data, size, host::Memory::device);
}
cudaError_t cudaMallocHost(void** data, std::size_t size) {
  return host::allocate(data, size, host::Memory::pinned_host);
}
cudaError_t cudaFree(void* data) {
  return host::release(data, host::Memory::device);
}
cudaError_t cudaFreeHost(void* data) {
  return host::release(data, host::Memory::pinned_host);
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t size, cudaStream_t) {
  host::enqueued.push_back([=] { std::memset(data, value, size); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind, cudaStream_t) {
  host::enqueued.push_back([=] { std::memcpy(to, from, size); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t size, cudaMemcpyKind) {
  host::finish();
  std::memcpy(to, from, size);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return host::wait();
}
cudaError_t cudaDeviceSynchronize() {
  return host::wait();
}
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "another error";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "of the host's runtime";
}

// ---- the library: plans are made of nothing but their configuration ----

fljsd_status fljsd_plan_create(const fljsd_config* config, fljsd_plan** plan) {
  ++host::state().plans_made;
  if (host::state().answer_to_plan != FLJSD_OK) return host::state().answer_to_plan;
  *plan = new fljsd_plan{config->stage, *config};
  ++host::state().plans_alive;
  return FLJSD_OK;
}
void fljsd_plan_destroy(fljsd_plan* plan) {
  host::state().plans_alive -= plan != nullptr;
  delete plan;
}
const char* fljsd_last_error(void) {
  return "The host makes no such plan.";
}

}  // extern "C"
