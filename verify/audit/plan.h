// SPDX-License-Identifier: Apache-2.0
// Which workloads an audit judges, at which sizes, and how large a sample of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/rounding.h"
#include "verify/cases/families.h"

namespace fljsd {

enum class Effort {
  quick,     // half a minute
  standard,  // up to three minutes
  full,      // every token of the published size: the better part of an hour
};

// What was asked for.
struct AuditRequest {
  std::vector<std::string> families;  // names or numbers; empty: all in the survey, the usual ones in depth
  // Names of rounding models, or what else make_candidate() takes; empty: all models.
  std::vector<std::string> candidates;
  std::optional<Index> tokens, hidden, vocab;  // of the workloads in depth
  std::uint64_t seed = 0;
  Effort effort = Effort::standard;
};

// One case to judge all candidates on.
struct Workload {
  CaseSpec spec;                      // token_rows is the sample
  std::vector<Index> weight_rows;     // rows of the weight gradient to judge
  std::vector<Index> certified_rows;  // positions in the sample whose loss is certified
  bool attribution = false;
};

struct AuditPlan {
  std::vector<RoundingModel> candidates;
  std::vector<std::string>
      programs;  // specifications of candidates that are no models, to be judged like them
  std::vector<Workload> survey, in_depth;
};

// Throws InvalidProblem, one sentence, for a family that does not exist.
AuditPlan make_plan(const AuditRequest& request);

// `count` of the numbers 0 .. size-1, ascending, all equally likely to be chosen; all of them if count >=
// size. The same for the same seed on every machine.
std::vector<Index> sample(Index size, Index count, std::uint64_t seed);

}  // namespace fljsd
