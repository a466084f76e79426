// SPDX-License-Identifier: Apache-2.0
// From a class that overrides one step of Twin to an entry of the zoo.
#pragma once

#include <memory>
#include <vector>

#include "verify/zoo/fault.h"
#include "verify/zoo/twin.h"

namespace fljsd::zoo {

// Runs one object of the class until it is reset, so that a fault may keep state.
template <class Wrong>
class TwinCandidate : public Candidate {
 public:
  explicit TwinCandidate(const Fault& fault) : fault_(fault) {}

  std::string name() const override { return fault_.candidate_name(); }
  std::string description() const override { return std::string(fault_.about.note); }
  Declaration declaration() override { return twin_->declaration(); }
  Outcome compute(const Case& c, const Request& request) override {
    return compute_views(c.problem(), c.options, request);
  }
  bool takes_views() const override { return true; }
  Outcome compute_views(const Problem& problem, const Options& options, const Request& request) override {
    return Answer{twin_->run(problem, options, request), Wrong::loss_format};
  }
  std::optional<Failure> reset() override {
    twin_ = std::make_unique<Wrong>();
    return std::nullopt;
  }

 private:
  Fault fault_;
  std::unique_ptr<Wrong> twin_ = std::make_unique<Wrong>();
};

template <class Wrong>
std::unique_ptr<Candidate> make_in_process(const Fault& fault) {
  return std::make_unique<TwinCandidate<Wrong>>(fault);
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
