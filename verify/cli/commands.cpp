// SPDX-License-Identifier: Apache-2.0
#include "verify/commands/commands.h"

#include "verify/cli/command.h"

namespace fljsd {

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      {"audit", "Judge how accurate fused linear + JSD pipelines are", setup_audit},
      {"gen", "Write a case of one of the input families to a file", setup_gen},
      {"loss", "Compute the true losses and gradients of a case", setup_loss},
      {"fuzz", "Search for a case that an implementation gets wrong", setup_fuzz},
      {"check", "Judge a result that any program computed for a case", setup_check},
      {"bench", "Time the CUDA stages beside the plain matrix products", setup_bench},
      {"reproduce", "Show published numbers beside measured ones", setup_reproduce},
  };
  return all;
}

}  // namespace fljsd
