// SPDX-License-Identifier: Apache-2.0
// Runs a program for a test and keeps what it writes.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace fljsd::test {

// A folder that disappears with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "fljsd_test_XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder can be made");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Finished {
  int status = 0;  // exit status, or minus the signal that ended it
  std::string out, err;
};

// A program that runs with `arguments` (the first is its path), standard input empty, and no settings about
// colours or languages in its environment. Where its output goes can be chosen: a path, or the writing end of
// a pipe.
class Process {
 public:
  explicit Process(std::vector<std::string> arguments, const std::string& out = "", int out_descriptor = -1)
      : out_path_(out.empty() ? folder_ / "out" : out) {
    child_ = fork();
    if (child_ < 0) throw std::runtime_error("no process can be made");
    if (child_ > 0) return;
    for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) std::signal(signal, SIG_DFL);
    for (const char* variable : {"NO_COLOR", "LC_ALL", "LC_CTYPE", "LANG"}) unsetenv(variable);
    const int in = open("/dev/null", O_RDONLY);
    const int out_file =
        out_descriptor >= 0 ? out_descriptor : open(out_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int err_file = open((folder_ / "err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(in, STDIN_FILENO);
    dup2(out_file, STDOUT_FILENO);
    dup2(err_file, STDERR_FILENO);
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  Process(const Process&) = delete;
  ~Process() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
  }

  void signal(int number) const { ::kill(child_, number); }

  Finished wait() {
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = 0;
    // A device such as /dev/full has no end to read to.
    const std::string out = std::filesystem::is_regular_file(out_path_) ? file_text(out_path_) : "";
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), out, file_text(folder_ / "err")};
  }

 private:
  TemporaryFolder folder_;
  std::string out_path_;
  pid_t child_ = 0;
};

}  // namespace fljsd::test
