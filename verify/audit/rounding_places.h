// SPDX-License-Identifier: Apache-2.0
// Where a pipeline may round, and what it keeps there: Pipeline as a table that people read.
#pragma once

#include "reference/rounding.h"
#include "verify/audit/programs.h"
#include "verify/audit/report.h"

namespace fljsd {

// `input` is the format of the tensors, which some pipelines store intermediate values in.
CandidateInfo candidate_info(const RoundingModel& model, DType input);
// The same places, without a format: nobody knows where a program rounds.
CandidateInfo candidate_info(const Program& program);

}  // namespace fljsd
