// SPDX-License-Identifier: Apache-2.0
// Whole files, mapped or replaced in one step. Errors are FileError sentences that begin with the path.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace fljsd {

// A file descriptor, closed when it goes out of scope.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  int number() const { return number_; }
  bool close();  // whether closing succeeded; nothing the second time

 private:
  int number_;
};

// A regular, non-empty file mapped read-only, and its size. If somebody shortens the file meanwhile, touching
// the lost pages ends the process (SIGBUS), as with any mapped file.
std::pair<std::shared_ptr<const std::byte>, std::size_t> map_file(const std::filesystem::path& path);

// A new file beside `target` that takes its place at commit(), and without it disappears. Until then `target`
// is untouched. A link is followed; devices, pipes and folders are refused.
class ReplacementFile {
 public:
  explicit ReplacementFile(const std::filesystem::path& target);
  ReplacementFile(const ReplacementFile&) = delete;
  ReplacementFile& operator=(const ReplacementFile&) = delete;
  ~ReplacementFile();

  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  [[noreturn]] void fail(int error) const;

  std::string origin_;
  std::filesystem::path target_;
  std::filesystem::path path_;
  std::unique_ptr<Descriptor> file_;
  bool committed_ = false;
};

// Removes what the ReplacementFiles of this process have written so far, for a signal handler that ends the
// process. Async-signal-safe.
void discard_unfinished_files() noexcept;

}  // namespace fljsd
