// SPDX-License-Identifier: Apache-2.0
// One workload of an audit: truth, every candidate's verdict, attribution, certified tokens.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "verify/audit/plan.h"
#include "verify/audit/programs.h"
#include "verify/audit/report.h"

namespace fljsd {

// Told what is being computed, whenever that changes.
using OnStep = std::function<void(const std::string&)>;

// Models first, then programs. Memory at most: the case, about 1 GiB, and the gradients of each distinct
// pipeline; with programs the case again, as a file that may lie in memory, and a whole weight gradient in
// float64.
WorkloadReport judge_workload(const Workload& workload, std::span<const RoundingModel> candidates,
                              const Programs& programs, const OnStep& on_step);

}  // namespace fljsd
