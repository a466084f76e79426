// SPDX-License-Identifier: Apache-2.0
#include "verify/bench/gpu/clock_log.h"

#include <csignal>
#include <cstdio>
#include <memory>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

namespace fljsd::bench {

ClockLog::ClockLog(int device) {
  int ends[2];
  if (pipe(ends) != 0) return;
  const std::string id = std::to_string(device);
  process_ = fork();
  if (process_ == 0) {
    dup2(ends[1], 1);
    close(ends[0]);
    close(ends[1]);
    execlp("nvidia-smi", "nvidia-smi", "-i", id.c_str(), "--query-gpu=clocks.sm,power.draw,temperature.gpu",
           "--format=csv,noheader,nounits", "-lms", "100", nullptr);
    _exit(127);
  }
  close(ends[1]);
  pipe_ = ends[0];
  thread_ = std::thread([this] { read(); });
}

ClockLog::~ClockLog() {
  if (process_ > 0) {
    kill(process_, SIGTERM);
    waitpid(process_, nullptr, 0);
  }
  if (thread_.joinable()) thread_.join();
}

void ClockLog::read() {
  const std::unique_ptr<FILE, int (*)(FILE*)> in(fdopen(pipe_, "r"), fclose);
  char line[256];
  while (in != nullptr && std::fgets(line, sizeof line, in.get()) != nullptr) {
    ClockSample s;
    if (std::sscanf(line, "%lf , %lf , %lf", &s.sm_mhz, &s.watts, &s.celsius) != 3) continue;
    const std::lock_guard lock(mutex_);
    samples_.push_back(s);
  }
}

std::vector<ClockSample> ClockLog::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(samples_, {});
}

std::string ClockLog::query(int device, const std::string& fields) {
  const std::string command = "nvidia-smi -i " + std::to_string(device) + " --query-gpu=" + fields +
                              " --format=csv,noheader 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> in(popen(command.c_str(), "r"), pclose);
  char line[512] = "";
  if (in == nullptr || std::fgets(line, sizeof line, in.get()) == nullptr) return "";
  std::string text = line;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace fljsd::bench
