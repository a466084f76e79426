// SPDX-License-Identifier: Apache-2.0
#include "verify/commands/commands.h"

#include "verify/cli/command.h"

namespace fljsd {

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      {"gen", "Write a case of one of the input families to a file", setup_gen},
      {"loss", "Compute the true losses and gradients of a case", setup_loss},
  };
  return all;
}

}  // namespace fljsd
