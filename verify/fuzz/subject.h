// SPDX-License-Identifier: Apache-2.0
// The candidate under judgement: one guarded evaluation at a time.
#pragma once

#include "verify/candidates/candidate.h"
#include "verify/cases/layout.h"

namespace fljsd {

class Subject {
 public:
  // Throws std::runtime_error if an external candidate does not introduce itself.
  explicit Subject(Candidate& candidate) : candidate_(candidate), declaration_(candidate.declaration()) {}

  const Declaration& declaration() const { return declaration_; }
  bool takes_views() const { return candidate_.takes_views(); }
  std::string name() const { return candidate_.name(); }
  bool has_grad() const { return !declaration_.lacks.has(Feature::grad); }
  bool has_token_loss() const { return !declaration_.lacks.has(Feature::token_loss); }

  // The candidate's answer, for a copy of the case at addresses of its own, laid out as told if it takes
  // views. An Answer has every part that the case and the declaration demand, in the right shape, and nothing
  // else. A failure also is what it throws, what it writes to its inputs, and an answer of the wrong shape.
  Outcome evaluate(const Case& c, const Layout& layout = {},
                   double fill = std::numeric_limits<double>::quiet_NaN());
  // As it stands in memory: tensors of `problem` must be views into something that nobody else changes.
  Outcome evaluate(const Problem& problem, const Options& options);

  // How often it was asked.
  Index evaluations() const { return evaluations_; }

  std::optional<Failure> reset() { return candidate_.reset(); }

 private:
  Request request(double fill) const;

  Candidate& candidate_;
  Declaration declaration_;
  Index evaluations_ = 0;
};

}  // namespace fljsd
