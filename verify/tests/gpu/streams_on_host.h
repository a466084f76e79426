// SPDX-License-Identifier: Apache-2.0
// CUDA's streams and events played by the host, for code whose threads share a device: what is enqueued is
// done later, one piece at a time in a random order that the streams' own order and their events allow. So
// what is not ordered is seen out of order. Device memory is host memory. Devices differ in this only: an
// event of one cannot be recorded in a stream of another, and each has a null stream of its own.
#pragma once

#include <cstddef>
#include <functional>

#include <cuda_runtime_api.h>

namespace fljsd::host_streams {

// Of the calling thread; cudaSetDevice does not exist here.
void use_device(int device);
void enqueue(cudaStream_t stream, std::function<void()> work);
// The copy after `more` further ones, and all later ones, are refused with cudaErrorInvalidValue; negative:
// none is.
void refuse_copies_after(int more);
// Of the random order.
void set_seed(unsigned seed);
// Allocations and streams that are alive.
int count_alive();

}  // namespace fljsd::host_streams
