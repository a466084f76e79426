// SPDX-License-Identifier: Apache-2.0
// From a class that overrides one step of Twin to an entry of the zoo.
#pragma once

#include <memory>
#include <vector>

#include "verify/candidates/function_candidate.h"
#include "verify/zoo/fault.h"
#include "verify/zoo/twin.h"

namespace fljsd::zoo {

// A candidate that runs one object of the class, which lives as long as the candidate does and so may keep
// state.
template <class Wrong>
std::unique_ptr<Candidate> make_in_process(const Fault& fault) {
  const auto pipeline = std::make_shared<Wrong>();
  return std::make_unique<ViewCandidate>(
      fault.candidate_name(), std::string(fault.about.note), pipeline->declaration(),
      [pipeline](const Problem& problem, const Options& options, const Request& request) -> Outcome {
        return Answer{pipeline->run(problem, options, request), Wrong::loss_format};
      });
}

// Entries for classes that have an `about`.
template <class... Wrong>
std::vector<Fault> list(std::string_view place) {
  return {Fault{Wrong::about, place, make_in_process<Wrong>}...};
}

// The parts of the list, each in the file of its name.
std::vector<Fault> reading_faults();
std::vector<Fault> selection_faults();
std::vector<Fault> logit_faults();
std::vector<Fault> softmax_faults();
std::vector<Fault> divergence_faults();
std::vector<Fault> reduction_faults();
std::vector<Fault> gradient_faults();
std::vector<Fault> state_faults();
std::vector<Fault> process_faults();

}  // namespace fljsd::zoo
