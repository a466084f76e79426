// SPDX-License-Identifier: Apache-2.0
#include "verify/tests/gpu/streams_on_host.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace fljsd::host_streams {
namespace {

struct Piece {
  std::function<void()> work;
  std::shared_ptr<bool> waits_for, marks;  // set once that record of an event was reached
};
struct Stream {
  int device;
  std::deque<Piece> pieces;
};
struct Event {
  int device;
  std::shared_ptr<bool> record;
};

std::mutex mutex;
std::vector<Stream*> streams;
std::map<int, std::unique_ptr<Stream>> null_streams;
std::mt19937 order;
int alive = 0, copies_left = -1;
thread_local int device = 0;

Stream* add_stream() {
  return streams.emplace_back(new Stream{device, {}});
}
// The mutex is held.
Stream& of(cudaStream_t stream) {
  if (stream != nullptr) return *reinterpret_cast<Stream*>(stream);
  std::unique_ptr<Stream>& null_stream = null_streams[device];
  if (null_stream == nullptr) null_stream.reset(add_stream());
  return *null_stream;
}
Event& of(cudaEvent_t event) {
  return *reinterpret_cast<Event*>(event);
}

// The mutex is held. Every stream's first piece, if it need not wait.
void advance() {
  std::vector<Stream*> turns = streams;
  std::shuffle(turns.begin(), turns.end(), order);
  turns.resize((turns.size() + 1) / 2);  // so that some streams fall behind
  for (Stream* stream : turns) {
    if (stream->pieces.empty()) continue;
    const Piece piece = stream->pieces.front();
    if (piece.waits_for && !*piece.waits_for) continue;
    stream->pieces.pop_front();
    if (piece.work) piece.work();
    if (piece.marks) *piece.marks = true;
  }
}

}  // namespace

void use_device(int number) {
  device = number;
}
void enqueue(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard lock(mutex);
  of(stream).pieces.push_back({std::move(work), nullptr, nullptr});
}
void refuse_copies_after(int more) {
  const std::lock_guard lock(mutex);
  copies_left = more;
}
void set_seed(unsigned seed) {
  const std::lock_guard lock(mutex);
  order.seed(seed);
}
int count_alive() {
  const std::lock_guard lock(mutex);
  return alive;
}

}  // namespace fljsd::host_streams

using namespace fljsd::host_streams;

extern "C" {

cudaError_t cudaGetDevice(int* number) {
  *number = device;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t) {
  return "an error";
}
const char* cudaGetErrorString(cudaError_t) {
  return "of the host's streams";
}

cudaError_t cudaMalloc(void** data, std::size_t size) {
  const std::lock_guard lock(mutex);
  ++alive;
  *data = std::malloc(size + 1);
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  const std::lock_guard lock(mutex);
  alive -= data != nullptr;
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  {
    const std::lock_guard lock(mutex);
    if (copies_left == 0) return cudaErrorInvalidValue;
    if (copies_left > 0) --copies_left;
  }
  if (kind != cudaMemcpyHostToDevice) {
    enqueue(stream, [=] { std::memcpy(to, from, size); });
    return cudaSuccess;
  }
  // Pageable memory is read before the call returns.
  const auto* bytes = static_cast<const std::byte*>(from);
  enqueue(stream, [to, read = std::vector<std::byte>(bytes, bytes + size)] {
    std::memcpy(to, read.data(), read.size());
  });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t size, cudaStream_t stream) {
  enqueue(stream, [=] { std::memset(data, value, size); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard lock(mutex);
  ++alive;
  *stream = reinterpret_cast<cudaStream_t>(add_stream());
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  --alive;
  Stream* gone = &of(stream);
  streams.erase(std::find(streams.begin(), streams.end(), gone));
  delete gone;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  advance();
  return of(stream).pieces.empty() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  while (cudaStreamQuery(stream) != cudaSuccess) std::this_thread::yield();
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new Event{device, std::make_shared<bool>(true)});
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &of(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  if (of(event).device != of(stream).device) return cudaErrorInvalidResourceHandle;
  of(event).record = std::make_shared<bool>(false);
  of(stream).pieces.push_back({nullptr, nullptr, of(event).record});
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(mutex);
  of(stream).pieces.push_back({nullptr, of(event).record, nullptr});
  return cudaSuccess;
}

}  // extern "C"
