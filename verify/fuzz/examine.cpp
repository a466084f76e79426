// SPDX-License-Identifier: Apache-2.0
#include "verify/fuzz/examine.h"

#include "verify/fuzz/outcome.h"

namespace fljsd {

bool has_choices(const std::string& check) {
  return check != check_name::answers && check != check_name::inputs_unchanged &&
         check != check_name::deterministic && check != check_name::accuracy;
}

Examination::Examination(Subject& subject, Oracle& oracle, const Recipe& recipe)
    : subject_(subject), oracle_(oracle), recipe_(recipe), case_(make_case(recipe)) {
  oracle_.forget();
}

FeatureSet Examination::lacking() const {
  return needed_features(case_) & subject_.declaration().lacks;
}

std::optional<std::string> Examination::unsupported() const {
  const auto* unsupported = first_ ? std::get_if<Unsupported>(&*first_) : nullptr;
  return unsupported ? std::optional(unsupported->text) : std::nullopt;
}

const Outcome& Examination::first() {
  if (!first_) first_ = subject_.evaluate(case_, recipe_.layout);
  return *first_;
}

CheckOutcome Examination::check(const std::string& name, int choice) {
  if (name == check_name::answers) return answers();
  if (name == check_name::inputs_unchanged) return inputs_unchanged();
  if (!std::holds_alternative<Answer>(first())) return not_applicable_because("there is no answer.");
  if (name == check_name::deterministic) return deterministic();
  if (name == check_name::stateless) return stateless(choice);
  if (name == check_name::accuracy) return accuracy();
  return property(name, choice);
}

bool Examination::use_certified_oracle() {
  certified_ = oracle_.certified(case_);
  return certified_.has_value();
}

CheckOutcome Examination::answers() {
  if (std::holds_alternative<Unsupported>(first())) return not_applicable_because(*unsupported());
  const auto* failure = std::get_if<Failure>(&first());
  if (!failure || failure->kind == Failure::Kind::input_modified) return {};
  return failed_because(no_answer(check_name::answers, *failure));
}

CheckOutcome Examination::inputs_unchanged() {
  if (std::holds_alternative<Answer>(first())) return {};
  const auto* failure = std::get_if<Failure>(&first());
  if (!failure || failure->kind != Failure::Kind::input_modified)
    return not_applicable_because("there is no answer.");
  return failed_because(no_answer(check_name::inputs_unchanged, *failure));
}

}  // namespace fljsd
