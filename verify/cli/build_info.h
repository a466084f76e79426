// SPDX-License-Identifier: Apache-2.0
// What this program was built from.
#pragma once

#include <string>

namespace fljsd {

struct BuildInfo {
  std::string version;  // "0.1.0"
  std::string commit;   // git's name of the commit, with "-dirty" when the tree had changes; empty if unknown
  std::string compiler;  // "GNU 12.2.0"
  std::string build_type;
};

const BuildInfo& build_info();

}  // namespace fljsd
