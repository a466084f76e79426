// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/line_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

namespace fljsd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t longest_line = 1 << 20;
constexpr off_t diagnostics_bytes = 8 << 10;

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void close_fd(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 1 << 30));
}

}  // namespace

LineProcess::LineProcess(const std::string& command) {
  // A socket for its stdin, because send() can refuse a signal when the reader is gone and write() cannot.
  std::array<int, 2> in{-1, -1}, out{-1, -1};
  std::FILE* errors = std::tmpfile();
  if (!errors) fail("cannot make a temporary file for a candidate's stderr");
  errors_ = fcntl(fileno(errors), F_DUPFD_CLOEXEC, 0);
  std::fclose(errors);
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in.data()) != 0 ||
      pipe2(out.data(), O_CLOEXEC) != 0) {
    fail("cannot make a pipe to a candidate");
  }
  pid_ = fork();
  if (pid_ < 0) fail("cannot start a candidate");
  if (pid_ == 0) {
    setpgid(0, 0);
    dup2(in[1], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(errors_, STDERR_FILENO);
    signal(SIGINT, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  setpgid(pid_, pid_);  // in both processes, so that it holds whichever runs first
  ::close(in[1]);
  ::close(out[1]);
  input_ = in[0];
  output_ = out[0];
}

LineProcess::~LineProcess() {
  kill();
  close_fd(errors_);
}

bool LineProcess::write_line(const std::string& line, Duration limit) {
  const auto deadline = Clock::now() + limit;
  const std::string bytes = line + "\n";
  for (std::size_t sent = 0; sent < bytes.size();) {
    pollfd ready{input_, POLLOUT, 0};
    const int n_ready = poll(&ready, 1, milliseconds_until(deadline));
    if (n_ready < 0 && errno == EINTR)
      continue;  // Ctrl-C ends a campaign, and is no fault of the candidate's
    if (n_ready <= 0) return false;
    const ssize_t n = send(input_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (n > 0) sent += static_cast<std::size_t>(n);
  }
  return true;
}

LineProcess::Read LineProcess::read_line(std::string& line, Duration limit) {
  const auto deadline = Clock::now() + limit;
  for (;;) {
    if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
      line = buffer_.substr(0, end);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      buffer_.erase(0, end + 1);
      return Read::line;
    }
    if (buffer_.size() > longest_line) return Read::too_long;
    pollfd ready{output_, POLLIN, 0};
    const int n_ready = poll(&ready, 1, milliseconds_until(deadline));
    if (n_ready == 0) return Read::time_out;
    if (n_ready < 0) {
      if (errno == EINTR) continue;
      return Read::closed;
    }
    std::array<char, 4096> chunk;
    const ssize_t n = read(output_, chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Read::closed;
    buffer_.append(chunk.data(), static_cast<std::size_t>(n));
  }
}

bool LineProcess::has_pending_output() {
  if (!buffer_.empty()) return true;
  pollfd ready{output_, POLLIN, 0};
  return poll(&ready, 1, 0) > 0 && (ready.revents & POLLIN) != 0;
}

// Waits for the end without blocking longer than the limit: short sleeps that double, because waitpid has no
// deadline.
bool LineProcess::reap(Duration limit) {
  const auto deadline = Clock::now() + limit;
  for (auto pause = std::chrono::microseconds(100); !status_;) {
    int status = 0;
    const pid_t ended = waitpid(pid_, &status, WNOHANG);
    if (ended == pid_) {
      status_ = status;
    } else if (ended < 0 && errno != EINTR) {
      status_ = 0;
    } else if (Clock::now() >= deadline) {
      return false;
    } else {
      std::this_thread::sleep_for(pause);
      pause = std::min<std::chrono::microseconds>(2 * pause, std::chrono::milliseconds(20));
    }
  }
  return true;
}

bool LineProcess::close(Duration limit) {
  close_fd(input_);
  const bool ended = reap(limit);
  kill();
  return ended;
}

void LineProcess::kill() {
  close_fd(input_);
  // Also after the shell itself has ended: what it started in the background is still in its group.
  ::kill(-pid_, SIGKILL);
  if (!status_) reap(std::chrono::seconds(10));
  close_fd(output_);
}

std::string LineProcess::ending() {
  if (!reap(std::chrono::milliseconds(0))) return "";
  if (WIFSIGNALED(*status_)) {
    const int signal_number = WTERMSIG(*status_);
    return "was killed by signal " + std::to_string(signal_number) + " (" + strsignal(signal_number) + ")";
  }
  return "exited with status " + std::to_string(WEXITSTATUS(*status_));
}

std::string LineProcess::diagnostics() const {
  struct stat info {};
  const off_t size = fstat(errors_, &info) == 0 ? info.st_size : 0;
  const off_t first = std::max<off_t>(0, size - diagnostics_bytes);
  std::string text(static_cast<std::size_t>(std::max<off_t>(0, size - first)), '\0');
  const ssize_t n = pread(errors_, text.data(), text.size(), first);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, n)));
  return text;
}

}  // namespace fljsd
