// SPDX-License-Identifier: Apache-2.0
#include "verify/report/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

namespace fljsd {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& reason) {
  throw OutputError(fmt::format("{} cannot be written: {}.", path.string(), reason));
}

std::string lower_first(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

[[noreturn]] void fail_with_errno(const fs::path& path) {
  fail(path, lower_first(std::strerror(errno)));
}

// An open file that is closed on every way out.
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  bool is_open() const { return fd_ >= 0; }
  bool write_all(const std::string& text) {
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t count = write(fd_, text.data() + done, text.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return false;
      done += static_cast<std::size_t>(count);
    }
    return true;
  }

 private:
  int fd_;
};

bool is_special(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status);
}

// The file that a rename must replace: a symbolic link stays, and what it points at changes.
fs::path target_of(const fs::path& path) {
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  return error ? path : target;
}

fs::path temporary_beside(const fs::path& path) {
  return path.parent_path() / fmt::format(".{}.{}.tmp", path.filename().string(), getpid());
}

}  // namespace

void require_writable(const fs::path& path) {
  if (path.filename().empty() || fs::is_directory(path)) fail(path, "it is a folder");
  if (is_special(path)) {
    if (access(path.c_str(), W_OK) != 0) fail_with_errno(path);
    return;
  }
  const fs::path temporary = temporary_beside(target_of(path));
  const Descriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file.is_open()) fail_with_errno(path);
  unlink(temporary.c_str());
}

void write_text(const fs::path& path, const std::string& text) {
  if (is_special(path)) {
    Descriptor file(path, O_WRONLY);
    if (!file.is_open() || !file.write_all(text)) fail_with_errno(path);
    return;
  }
  const fs::path target = target_of(path), temporary = temporary_beside(target);
  {
    Descriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    if (!file.is_open()) fail_with_errno(path);
    if (!file.write_all(text)) {
      const int reason = errno;
      unlink(temporary.c_str());
      errno = reason;
      fail_with_errno(path);
    }
  }
  if (std::rename(temporary.c_str(), target.c_str()) != 0) {
    const int reason = errno;
    unlink(temporary.c_str());
    errno = reason;
    fail_with_errno(path);
  }
}

}  // namespace fljsd
