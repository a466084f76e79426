// SPDX-License-Identifier: Apache-2.0
#include "verify/cases/file_io.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "verify/cases/file_parts.h"

namespace fljsd {
namespace {

std::string system_text(int error) {
  return std::generic_category().message(error);
}

// Names of the unfinished files, where a signal handler can read them at any moment: memory that is never
// freed, and a flag that is set only while the name is whole. More files at once than slots only means that
// some would stay.
struct UnfinishedName {
  std::atomic<bool> taken{false}, whole{false};
  char path[PATH_MAX] = {};
};
std::array<UnfinishedName, 8> unfinished_names;

void note_unfinished(const std::filesystem::path& path) {
  for (UnfinishedName& name : unfinished_names) {
    if (path.native().size() >= sizeof name.path || name.taken.exchange(true)) continue;
    std::strcpy(name.path, path.c_str());
    name.whole = true;
    return;
  }
}

void forget_unfinished(const std::filesystem::path& path) {
  for (UnfinishedName& name : unfinished_names) {
    if (!name.whole || path != name.path) continue;
    name.whole = false;
    name.taken = false;
  }
}

// What to replace: a link's target rather than the link, and never a device, a pipe or a folder.
std::filesystem::path resolve(const std::filesystem::path& target) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(target, error);
  if (!std::filesystem::exists(status)) return target;
  if (!std::filesystem::is_regular_file(status)) {
    refuse_file(target.string(), "the file cannot be written: it exists and is not a regular file.");
  }
  const std::filesystem::path real = std::filesystem::canonical(target, error);
  return error ? target : real;
}

}  // namespace

bool Descriptor::close() {
  const int number = std::exchange(number_, -1);
  return number < 0 || ::close(number) == 0;
}

std::pair<std::shared_ptr<const std::byte>, std::size_t> map_file(const std::filesystem::path& path) {
  const std::string origin = path.string();
  const auto fail = [&] { refuse_file(origin, "the file cannot be read: " + system_text(errno) + "."); };
  // O_NONBLOCK: opening a pipe must not wait for its other end; it changes nothing for regular files.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) fail();
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) fail();
  if (S_ISDIR(status.st_mode)) refuse_file(origin, "this is a folder, but it must be a safetensors file.");
  if (!S_ISREG(status.st_mode)) refuse_file(origin, "this is not a regular file, but it must be one.");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0)
    refuse_file(origin, "the file is empty, but a safetensors file has at least 8 bytes and a header.");

  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (address == MAP_FAILED) fail();
  return {std::shared_ptr<const std::byte>(
              static_cast<const std::byte*>(address),
              [size](const std::byte* p) { ::munmap(const_cast<std::byte*>(p), size); }),
          size};
}

ReplacementFile::ReplacementFile(const std::filesystem::path& target)
    : origin_(target.string()), target_(resolve(target)) {
  // Unique among the processes that write here now; what a killed one left is passed by.
  for (int attempt = 0;; ++attempt) {
    path_ = target_;
    path_ += fmt::format(".{}-{}.tmp", ::getpid(), attempt);
    // Noted before it exists: a signal between the two would leave it behind. Another file of this name can
    // only be what a dead process with our number left, so that removing it would do no harm.
    note_unfinished(path_);
    const int number = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (number >= 0) {
      file_ = std::make_unique<Descriptor>(number);
      return;
    }
    const int error = errno;
    forget_unfinished(path_);
    if (error != EEXIST) fail(error);
  }
}

ReplacementFile::~ReplacementFile() {
  if (!committed_) ::unlink(path_.c_str());
  forget_unfinished(path_);
}

void ReplacementFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // In pieces, because a signal waits for the end of each.
    const ssize_t written =
        ::write(file_->number(), bytes.data(), std::min(bytes.size(), std::size_t{1} << 25));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void ReplacementFile::commit() {
  if (::fsync(file_->number()) != 0 || !file_->close() || ::rename(path_.c_str(), target_.c_str()) != 0)
    fail(errno);
  committed_ = true;
  // The file is complete under its new name; that the name survives a power cut takes this as well.
  const std::filesystem::path folder = target_.has_parent_path() ? target_.parent_path() : ".";
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.number() >= 0) ::fsync(opened.number());
}

void discard_unfinished_files() noexcept {
  for (const UnfinishedName& name : unfinished_names)
    if (name.whole) ::unlink(name.path);
}

void ReplacementFile::fail(int error) const {
  refuse_file(origin_, "the file cannot be written: " + system_text(error) + ".");
}

}  // namespace fljsd
