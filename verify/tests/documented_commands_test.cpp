// SPDX-License-Identifier: Apache-2.0
// What the documents tell a reader to type is what the program takes.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "verify/tests/subprocess.h"

namespace fljsd {
namespace {

namespace fs = std::filesystem;
using test::file_text;
using test::Process;

// README.md, CONTRIBUTING.md, and everything under the folders whose texts and comments name commands.
std::vector<fs::path> documents() {
  const fs::path root = FLJSD_SOURCE_DIR;
  std::vector<fs::path> found = {root / "README.md", root / "CONTRIBUTING.md"};
  const std::set<std::string> extensions = {".md", ".py", ".sh"};
  for (const char* folder : {"docs", "data", "examples", "notebooks/source", "verify/peers",
                             "verify/bench/peers", "verify/python", "verify/tools"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder))
      if (extensions.count(entry.path().extension().string())) found.push_back(entry.path());
  return found;
}

// The options that a command's help names; of an unknown command none, and `status` is not 0.
std::string help_of(const std::string& command, int& status) {
  const auto finished = Process(std::vector<std::string>{FLJSD_PROGRAM, command, "--help"}).wait();
  status = finished.status;
  return finished.out;
}

// Fault: an option that is renamed, dropped, or described before it exists. (`fljsd bench --peers` was, for a
// while.)
TEST(Documents, NameCommandsAndOptionsThatExist) {
  // After `fljsd` in code: the command and what follows, up to where the shell or the text takes over.
  const std::regex call(R"((?:\./|`)fljsd ([a-z][a-z-]*)([^`#|&\n]*))"), option(R"( (--[a-z][a-z-]*))");
  const std::set<std::string> of_the_script = {"bench-cpu", "build",
                                               "test"};  // the shell script ./fljsd itself
  std::map<std::string, std::string> helps;
  std::set<std::string> seen;
  for (const fs::path& document : documents()) {
    const std::string text = file_text(document.string());
    for (std::sregex_iterator c(text.begin(), text.end(), call), end; c != end; ++c) {
      const std::string command = (*c)[1], rest = (*c)[2];
      if (of_the_script.count(command)) continue;
      if (!helps.count(command)) {
        int status = 0;
        helps[command] = help_of(command, status);
        EXPECT_EQ(status, 0) << document << " names a command that does not exist: " << c->str();
      }
      // What is quoted belongs to the program that a candidate starts.
      const std::string own = std::regex_replace(rest, std::regex(R"("[^"]*"|'[^']*')"), "");
      for (std::sregex_iterator o(own.begin(), own.end(), option); o != end; ++o) {
        seen.insert(command + " " + o->str(1));
        const std::regex stands(o->str(1) + R"([ ,\n])");
        EXPECT_TRUE(std::regex_search(helps[command], stands))
            << document << " names an option that `fljsd " << command << " --help` does not: " << c->str();
      }
    }
  }
  EXPECT_GE(seen.size(), 20u) << "the search finds too little to mean anything";
}

}  // namespace
}  // namespace fljsd
