// SPDX-License-Identifier: Apache-2.0
// Runs independent pieces of work on all cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

#include <mpfr.h>

#include "reference/dtype.h"

namespace fljsd {

// Threads that parallel_for uses: the cores that this process may run on.
inline int thread_count() {
#ifdef __linux__
  if (cpu_set_t cores; sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Calls body(i) once for each i in [0, count), in any order, from several threads; returns when all are done.
// The pieces must not depend on each other, and then the result does not depend on the number of threads. The
// first exception that a piece throws is thrown again here.
template <class Body>
void parallel_for(Index count, const Body& body) {
  std::atomic<Index> next{0};
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto work = [&] {
    try {
      for (Index i = next++; i < count; i = next++) body(i);
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
      next = count;
    }
  };
  std::vector<std::thread> threads;
  const Index helpers = std::max<Index>(std::min<Index>(thread_count(), count) - 1, 0);
  threads.reserve(static_cast<std::size_t>(helpers));
  try {
    for (Index i = 0; i < helpers; ++i) {
      threads.emplace_back([&work] {
        work();
        mpfr_free_cache();  // MPFR's constants and pools belong to the thread, and would be lost with it
      });
    }
  } catch (const std::system_error&) {
    // The system gives no more threads; those there are do all the work.
  }
  work();
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace fljsd
