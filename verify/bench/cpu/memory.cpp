// SPDX-License-Identifier: Apache-2.0
#include "verify/bench/cpu/memory.h"

#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>

namespace fljsd::bench {
namespace {

// A line of /proc/self/status: "VmHWM:   123 kB".
double status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string word;
  double kib = 0;
  while (status >> word)
    if (word == key + ":" && status >> kib) return kib * 1024;
  throw std::runtime_error("/proc/self/status has no line " + key);
}

}  // namespace

void reset_peak_memory() {
  std::ofstream refs("/proc/self/clear_refs");
  if (!(refs << "5" << std::flush))  // 5: set the peak to the present size, see proc(5)
    throw std::system_error(errno, std::generic_category(), "/proc/self/clear_refs");
}

double resident_bytes() {
  return status_bytes("VmRSS");
}

double peak_resident_bytes() {
  return status_bytes("VmHWM");
}

}  // namespace fljsd::bench
