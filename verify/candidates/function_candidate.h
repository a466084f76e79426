// SPDX-License-Identifier: Apache-2.0
// A candidate that is a C++ function, of a case or of tensors that may lie anywhere.
#pragma once

#include <functional>
#include <utility>

#include "verify/candidates/candidate.h"

namespace fljsd {

class FunctionCandidate : public Candidate {
 public:
  using Function = std::function<Outcome(const Case&, const Request&)>;

  FunctionCandidate(std::string name, std::string description, Declaration declaration, Function function)
      : name_(std::move(name)),
        description_(std::move(description)),
        declaration_(declaration),
        function_(std::move(function)) {}

  std::string name() const override { return name_; }
  std::string description() const override { return description_; }
  Declaration declaration() override { return declaration_; }
  Outcome compute(const Case& c, const Request& request) override { return function_(c, request); }

 private:
  std::string name_, description_;
  Declaration declaration_;
  Function function_;
};

class ViewCandidate : public FunctionCandidate {
 public:
  using Function = std::function<Outcome(const Problem&, const Options&, const Request&)>;

  ViewCandidate(std::string name, std::string description, Declaration declaration, Function function)
      : FunctionCandidate(std::move(name), std::move(description), declaration,
                          [function](const Case& c, const Request& request) {
                            return function(c.problem(), c.options, request);
                          }),
        function_(std::move(function)) {}

  bool takes_views() const override { return true; }
  Outcome compute_views(const Problem& problem, const Options& options, const Request& request) override {
    return function_(problem, options, request);
  }

 private:
  Function function_;
};

// The gradients that a request stands for: those of the bias only where the case has one.
inline Wanted wanted_for(const Problem& problem, const Request& request) {
  return {request.grad, request.grad, request.grad && problem.student_bias.has_value(), std::nullopt};
}
inline Wanted wanted_for(const Case& c, const Request& request) {
  return wanted_for(c.problem(), request);
}

}  // namespace fljsd
