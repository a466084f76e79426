// SPDX-License-Identifier: Apache-2.0
// Runs an audit: plan in, report out. Prints nothing.
#pragma once

#include "verify/audit/judge_workload.h"
#include "verify/audit/plan.h"
#include "verify/audit/report.h"

namespace fljsd {

// Everything but `run` of the report. Workloads are judged one after the other and freed between. `programs`:
// made of plan.programs, which names them in the report.
AuditReport run_audit(const AuditPlan& plan, const Programs& programs, const OnStep& on_step);

// The processor, threads, date and memory of this process; what only the caller knows is left empty.
RunRecord record_run();

}  // namespace fljsd
