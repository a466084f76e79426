// SPDX-License-Identifier: Apache-2.0
#include <csignal>

#include "verify/cli/cli.h"

int main(int argc, char** argv) {
  // `fljsd ... | head` ends quietly, even under a parent that ignores SIGPIPE.
  std::signal(SIGPIPE, SIG_DFL);
  return fljsd::run_command_line(argc, argv);
}
