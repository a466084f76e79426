// SPDX-License-Identifier: Apache-2.0
#include "verify/report/progress.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "verify/report/number.h"
#include "verify/report/terminal.h"

namespace fljsd {

using Clock = std::chrono::steady_clock;

// A thread of its own redraws the line, because the work between two steps can be long.
struct Progress::Line {
  std::mutex mutex;
  std::condition_variable changed;
  std::string what;
  Clock::time_point begin = Clock::now();
  bool drawn = false;
  bool finished = false;
  std::thread thread{[this] { draw_until_finished(); }};

  void draw_until_finished() {
    using namespace std::chrono_literals;
    std::unique_lock lock(mutex);
    while (!finished) {
      changed.wait_for(lock, 250ms);
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      if (finished || what.empty() || seconds < 2) continue;
      const std::string elapsed = fmt::format(" ({:.0f} s)", seconds);
      // A line that wraps could not be erased.
      const std::size_t room = static_cast<std::size_t>(terminal_width()) - elapsed.size() - 1;
      fmt::print(stderr, "\r\033[K{}{}", what.substr(0, room), elapsed);
      std::fflush(stderr);
      drawn = true;
    }
  }

  void erase() {
    if (drawn) fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
    drawn = false;
  }
};

Progress::Progress() {
  if (stderr_is_terminal()) line_ = std::make_unique<Line>();
}

Progress::~Progress() {
  if (!line_) return;
  {
    const std::lock_guard lock(line_->mutex);
    line_->finished = true;
  }
  line_->changed.notify_all();
  line_->thread.join();
  line_->erase();
}

void Progress::step(const std::string& what) {
  if (!line_) return;
  const std::lock_guard lock(line_->mutex);
  line_->what = what;
}

void Progress::pause() {
  if (!line_) return;
  const std::lock_guard lock(line_->mutex);
  line_->what.clear();
  line_->erase();
}

}  // namespace fljsd
