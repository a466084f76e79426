// SPDX-License-Identifier: Apache-2.0
// The subcommands; verify/cli/commands.cpp lists them.
#pragma once

#include "verify/cli/command.h"

namespace fljsd {

Action setup_audit(CLI::App& app);
Action setup_bench(CLI::App& app);
Action setup_check(CLI::App& app);
Action setup_fuzz(CLI::App& app);
Action setup_gen(CLI::App& app);
Action setup_loss(CLI::App& app);
Action setup_reproduce(CLI::App& app);

}  // namespace fljsd
