// SPDX-License-Identifier: Apache-2.0
// Candidates of an audit that are no rounding models: programs and GPU stages, judged on the same cases by
// the same budgets.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "verify/audit/report.h"
#include "verify/candidates/candidate.h"

namespace fljsd {

struct Program {
  std::string name;  // in tables, unlike any other candidate's
  std::unique_ptr<Candidate> candidate;
};
using Programs = std::vector<Program>;

// Makes them of specifications (make_candidate()) and lets each introduce itself. `taken`: names of other
// candidates. `timeout`: seconds that an external program may take for a case. Throws std::invalid_argument
// or std::runtime_error, one sentence, for one that does not exist or does not introduce itself.
Programs make_programs(std::span<const std::string> specifications, std::span<const std::string> taken,
                       double timeout);

// What it answers to `c`, beside the truth, whose weight gradient holds the rows `weight_rows` only. What it
// lacks is absent from the report; a case that needs what it lacks altogether is not judged, and a failure
// breaks its class.
CandidateReport judge_program(const Program& program, const Case& c, const Truth& truth,
                              const Budgets& budgets, const std::vector<Index>& weight_rows);

}  // namespace fljsd
