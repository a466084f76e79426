// SPDX-License-Identifier: Apache-2.0
#include <csignal>

#include "verify/cases/file_io.h"
#include "verify/cli/cli.h"

namespace {

// Ends the process as the signal would have, so that a shell sees 130 after Ctrl-C and stops its loop, but
// leaves no half-written file behind.
void clean_up_and_end(int signal) {
  fljsd::discard_unfinished_files();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

int main(int argc, char** argv) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (std::signal(signal, clean_up_and_end) == SIG_IGN) std::signal(signal, SIG_IGN);  // under nohup
  // `fljsd ... | head` ends quietly, even under a parent that ignores SIGPIPE.
  std::signal(SIGPIPE, SIG_DFL);
  return fljsd::run_command_line(argc, argv);
}
