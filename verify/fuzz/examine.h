// SPDX-License-Identifier: Apache-2.0
// One recipe under examination: every check of it, sharing the candidate's first answer and the oracle's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/fuzz/campaign.h"
#include "verify/fuzz/oracle.h"
#include "verify/fuzz/subject.h"
#include "verify/judge/verdict.h"
#include "verify/properties/property.h"

namespace fljsd {

// The engine's own checks; all others are properties of the catalogue.
namespace check_name {
inline constexpr const char* answers = "answers";
inline constexpr const char* inputs_unchanged = "inputs-unchanged";
inline constexpr const char* deterministic = "deterministic";
inline constexpr const char* stateless = "stateless";
inline constexpr const char* accuracy = "accuracy";
}  // namespace check_name

// What a check leaves open, such as a permutation, follows from a number 0 .. choices − 1. So few, that
// trying them all reproduces a finding from its recipe alone.
inline constexpr int choices = 16;
// Whether the check's outcome depends on that number.
bool has_choices(const std::string& check);

struct Failed {
  FindingKind kind;
  double observed = 0, allowed = 0;
  std::string text;
  std::optional<JudgedValue> value;
  std::string diagnostics;
};

struct CheckOutcome {
  bool applicable = true;  // false: this check says nothing about this recipe; `reason` says why
  std::string reason;
  std::vector<Failed> failed;        // in the order of computing: losses of tokens first
  double observed = 0, allowed = 0;  // the comparison nearest to failing, if it held
  bool doubtful = false;             // it failed, but by no more than the oracle's own error may explain
  // Kinds of inaccuracy of the other cases that a property was checked on: what it failed by may be no news.
  std::vector<FindingKind> inaccurate;

  bool held() const { return applicable && failed.empty() && !doubtful; }
};

class Examination {
 public:
  // Makes the case; throws InvalidProblem if the recipe is none. Both others must outlive it.
  Examination(Subject& subject, Oracle& oracle, const Recipe& recipe);

  const Recipe& recipe() const { return recipe_; }
  const Case& example() const { return case_; }
  // What the case needs and the candidate lacks: if any, there is nothing to check.
  FeatureSet lacking() const;
  // What the candidate itself said it does not support, after a check.
  std::optional<std::string> unsupported() const;

  CheckOutcome check(const std::string& name, int choice);

  // From now on the case itself is judged by the certified tier. False if that has no answer for it.
  bool use_certified_oracle();

  // Test ratios of the first answer against the oracle, after the accuracy check.
  const std::vector<VerdictRow>& rows() const { return rows_; }

 private:
  struct InPassing;
  const Outcome& first();
  CheckOutcome answers();
  CheckOutcome inputs_unchanged();
  CheckOutcome accuracy();
  // Whether the second answer for a case is the same as the first one; both accurate, if bits may differ.
  CheckOutcome same_again(const char* name, const std::string& when, const Case& c, const Outcome& one,
                          const Outcome& two);
  CheckOutcome deterministic();
  CheckOutcome stateless(int choice);
  CheckOutcome property(const std::string& name, int choice);
  Implementation implementation(bool always_evaluate, InPassing& in_passing);
  std::vector<Failed> inaccuracies(const Case& c, const Answer& answer, const char* check, bool& doubtful,
                                   std::vector<VerdictRow>* rows);

  Subject& subject_;
  Oracle& oracle_;
  Recipe recipe_;
  Case case_;
  std::optional<Outcome> first_;
  std::vector<VerdictRow> rows_;
  std::optional<OracleAnswer> certified_;
};

// Evaluates two small cases of other shapes than the recipe's, so that what a candidate keeps for shapes is
// dropped.
void clear_caches(Subject& subject, const Recipe& recipe);

// The recipe without what the candidate lacks, where a recipe can do without: another temperature than 1,
// labels, biases, formats. What its family brings along stays.
Recipe adapted(Recipe recipe, const FeatureSet& lacks);

}  // namespace fljsd
