// SPDX-License-Identifier: Apache-2.0
// Clock, power and temperature of the GPU while something runs, as nvidia-smi reports them.
#pragma once

#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fljsd::bench {

struct ClockSample {
  double sm_mhz, watts, celsius;
};

// Samples ten times a second from construction to destruction; without nvidia-smi there are no samples.
class ClockLog {
 public:
  explicit ClockLog(int device);
  ~ClockLog();
  ClockLog(const ClockLog&) = delete;
  ClockLog& operator=(const ClockLog&) = delete;

  // Samples since the last call.
  std::vector<ClockSample> take();
  // Name, driver and such of the device: the answer to one query; empty without nvidia-smi.
  static std::string query(int device, const std::string& fields);

 private:
  void read();

  int process_ = -1;
  int pipe_ = -1;
  std::mutex mutex_;
  std::vector<ClockSample> samples_;
  std::thread thread_;
};

}  // namespace fljsd::bench
