// SPDX-License-Identifier: Apache-2.0
#include "verify/bench/gpu/clock_log.h"

#include <chrono>
#include <stdexcept>
#include <utility>

#include <cuda_runtime_api.h>
#include <dlfcn.h>

namespace fljsd::bench {

// The functions of NVML that are used, as its documentation declares them: nvmlDevice_t is a pointer,
// nvmlReturn_t an enumeration whose 0 is success, clock type 1 the multiprocessors', sensor 0 the GPU's.
struct ClockLog::Library {
  void* handle = nullptr;
  void* device = nullptr;
  int (*shutdown)() = nullptr;
  int (*clock)(void*, int, unsigned*) = nullptr;
  int (*power)(void*, unsigned*) = nullptr;
  int (*temperature)(void*, int, unsigned*) = nullptr;

  ~Library() {
    if (shutdown != nullptr) shutdown();
    if (handle != nullptr) dlclose(handle);
  }

  template <class Function>
  void find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function == nullptr) throw std::runtime_error(std::string("NVML has no function ") + name + ".");
  }

  // Returns the driver's version. Throws std::runtime_error, one sentence.
  std::string open(int ordinal) {
    handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw std::runtime_error("the driver's library libnvidia-ml.so.1 is not there.");
    int (*start)() = nullptr;
    int (*by_bus)(const char*, void**) = nullptr;
    int (*driver_version)(char*, unsigned) = nullptr;
    find("nvmlInit_v2", start);
    find("nvmlDeviceGetHandleByPciBusId_v2", by_bus);
    find("nvmlSystemGetDriverVersion", driver_version);
    find("nvmlDeviceGetClockInfo", clock);
    find("nvmlDeviceGetPowerUsage", power);
    find("nvmlDeviceGetTemperature", temperature);
    if (start() != 0) throw std::runtime_error("NVML does not start.");
    find("nvmlShutdown", shutdown);
    char bus[64] = "", version[96] = "";
    // NVML numbers devices in its own order.
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, ordinal) != cudaSuccess || by_bus(bus, &device) != 0)
      throw std::runtime_error("NVML does not know the device.");
    if (driver_version(version, sizeof version) != 0) version[0] = 0;
    return version;
  }

  bool read(ClockSample& sample) const {
    unsigned mhz = 0, milliwatts = 0, degrees = 0;
    if (clock(device, 1, &mhz) != 0 || power(device, &milliwatts) != 0 ||
        temperature(device, 0, &degrees) != 0) {
      return false;
    }
    sample = {static_cast<double>(mhz), milliwatts * 1e-3, static_cast<double>(degrees)};
    return true;
  }
};

ClockLog::ClockLog(int device) : library_(std::make_unique<Library>()) {
  try {
    driver_ = library_->open(device);
    source_ = "NVML";
  } catch (const std::runtime_error& error) {
    source_ = error.what();
    return;
  }
  thread_ = std::thread([this] {
    while (!stop_) {
      ClockSample sample;
      if (library_->read(sample)) {
        const std::lock_guard lock(mutex_);
        samples_.push_back(sample);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
}

ClockLog::~ClockLog() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

std::vector<ClockSample> ClockLog::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(samples_, {});
}

}  // namespace fljsd::bench
