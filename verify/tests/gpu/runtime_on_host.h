// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime and the making of plans, played by the host: device memory is host memory, and what is
// enqueued is done only when somebody waits. With it, code that owns device memory and plans is tested
// without a device, and one that does not wait, frees twice or mixes up its allocators is seen to.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cuda/fljsd.h"

// What the library's users see only a pointer to.
struct fljsd_plan {
  std::string stage;
  fljsd_config config;
};

namespace fljsd::host_runtime {

enum class Memory { device, pinned_host };

struct State {
  // Allocations, in order, those that were freed included.
  struct Allocation {
    std::byte* data;
    std::size_t size;
    Memory memory;
    bool freed;
  };
  std::vector<Allocation> allocations;
  int waits = 0;                 // of the caller for the device or a stream
  int frees_with_work_left = 0;  // while something was enqueued
  int bad_frees = 0;             // of what was not allocated, by the other allocator, or a second time

  std::size_t most_memory = ~std::size_t{0};  // allocations beyond this many bytes, of both kinds, fail
  fljsd_status answer_to_plan = FLJSD_OK;     // of fljsd_plan_create
  int plans_made = 0, plans_alive = 0;

  std::size_t bytes_alive() const;
  int count_alive() const;
};

// Of the process; tests run one after another.
State& state();
// As at the start. Nothing may be alive.
void restart();

}  // namespace fljsd::host_runtime
