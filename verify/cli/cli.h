// SPDX-License-Identifier: Apache-2.0
// Parses the command line, runs one subcommand, and turns every failure into one sentence on standard error.
#pragma once

namespace fljsd {

// Returns the exit status of the process (command.h).
int run_command_line(int argc, const char* const* argv);

}  // namespace fljsd
