// SPDX-License-Identifier: Apache-2.0
// Clock, power and temperature of the GPU while something runs, as its management library (NVML) reports
// them. The library is looked up when the program runs: it belongs to the driver, and may be missing.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fljsd::bench {

struct ClockSample {
  double sm_mhz, watts, celsius;
};

// Samples fifty times a second from construction to destruction.
class ClockLog {
 public:
  // device: CUDA ordinal.
  explicit ClockLog(int device);
  ~ClockLog();
  ClockLog(const ClockLog&) = delete;
  ClockLog& operator=(const ClockLog&) = delete;

  // Samples since the last call; none without the library.
  std::vector<ClockSample> take();
  // "NVML", or one sentence that says why there are no samples.
  const std::string& source() const { return source_; }
  // Of the driver; empty without the library.
  const std::string& driver() const { return driver_; }

 private:
  struct Library;
  std::unique_ptr<Library> library_;
  std::string source_, driver_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::vector<ClockSample> samples_;
  std::thread thread_;
};

}  // namespace fljsd::bench
