// SPDX-License-Identifier: Apache-2.0
// Plans of the CUDA library, owned; and those of the latest calls, for calls of the same configuration.
// Making a plan asks cuBLASLt for dozens of algorithms: for a small case that takes longer than computing it.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "cuda/fljsd.h"

namespace fljsd {

using PlanPointer = std::shared_ptr<fljsd_plan>;

// Throws StageUnsupported or std::runtime_error with the library's sentence.
PlanPointer make_plan(const fljsd_config& config);

class PlanCache {
 public:
  // As make_plan.
  PlanPointer get(const fljsd_config& config);

 private:
  struct Entry {
    std::string key;
    PlanPointer plan;
  };
  std::deque<Entry> entries_;  // the latest first
};

}  // namespace fljsd
