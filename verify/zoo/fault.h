// SPDX-License-Identifier: Apache-2.0
// The zoo: candidates that are right but for one fault each. What judges implementations must convict every
// one of them, and acquit those that have no fault.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "verify/candidates/candidate.h"

namespace fljsd::zoo {

// The name of a fault, and the public faults of its kind in one line.
struct About {
  std::string_view name;  // kebab-case; the candidate is called zoo:NAME
  std::string_view note;
};

struct Fault {
  About about;
  std::string_view place;  // the part of the computation that is wrong
  std::unique_ptr<Candidate> (*make)(const Fault&);

  std::string candidate_name() const { return "zoo:" + std::string(about.name); }
};

// Every fault, in the order of the computation.
std::span<const Fault> faults();

// The candidates without a fault: one for each accuracy class.
std::span<const Fault> correct_twins();

// Throws std::invalid_argument, one sentence, for a name that neither list has.
const Fault& find_fault(std::string_view name);
std::unique_ptr<Candidate> make(const Fault& fault);

}  // namespace fljsd::zoo
