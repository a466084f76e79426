// SPDX-License-Identifier: Apache-2.0
// A child process that is spoken to in lines: one line in, one line out, each with a deadline.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

namespace fljsd {

// Runs `/bin/sh -c command` in a process group of its own, so that Ctrl-C in the terminal reaches us alone
// and killing it reaches everything it started. Its stderr is kept. Not copyable; the destructor kills what
// still runs.
class LineProcess {
 public:
  using Duration = std::chrono::milliseconds;

  // Throws std::system_error when no process can be made.
  explicit LineProcess(const std::string& command);
  ~LineProcess();
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  enum class Read { line, time_out, closed, too_long };
  // False when the process no longer reads.
  bool write_line(const std::string& line, Duration limit);
  // The next line of its stdout without the line end; lines over 1 MiB are too_long.
  Read read_line(std::string& line, Duration limit);
  // Whether it has written anything that no read_line has returned: candidates never speak unasked.
  bool has_pending_output();

  // Closes its input and waits. False when it had to be killed.
  bool close(Duration limit);
  // Kills the whole process group and reaps it.
  void kill();

  // How it ended, as a phrase: "exited with status 3", "was killed by signal 11 (Segmentation fault)". Empty
  // while it runs.
  std::string ending();
  // The end of its stderr so far, at most 8 KiB.
  std::string diagnostics() const;

 private:
  bool reap(Duration limit);

  pid_t pid_ = -1;
  int input_ = -1, output_ = -1, errors_ = -1;
  std::string buffer_;
  std::optional<int> status_;
};

}  // namespace fljsd
