// SPDX-License-Identifier: Apache-2.0
// The same case again, at once or after others: the answer must be the same.
#include <limits>

#include <fmt/format.h>

#include "verify/cases/random.h"
#include "verify/fuzz/difference.h"
#include "verify/fuzz/examine.h"
#include "verify/fuzz/outcome.h"
#include "verify/judge/metrics.h"
#include "verify/report/number.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// What result buffers hold at the second evaluation: a number, because a forgotten element may be NaN by
// right.
constexpr double second_fill = -7.5;

}  // namespace

CheckOutcome Examination::same_again(const char* name, const std::string& when, const Case& c,
                                     const Outcome& one, const Outcome& two) {
  if (!std::holds_alternative<Answer>(one)) return not_applicable_because("there is no answer.");
  if (const auto* failure = std::get_if<Failure>(&two)) {
    Failed failed = no_answer(name, *failure);
    failed.text = fmt::format("{}: {}", when, failed.text);
    return failed_because(std::move(failed));
  }
  if (const auto* unsupported = std::get_if<Unsupported>(&two)) {
    return failed_because(
        {{name, "", fljsd::name(Failure::Kind::error)},
         infinity,
         0,
         fmt::format("{} it says '{}', but it had answered before", when, unsupported->text),
         std::nullopt,
         ""});
  }
  const Answer &a = std::get<Answer>(one), &b = std::get<Answer>(two);
  if (subject_.declaration().deterministic) {
    const auto difference = first_difference(a.result, b.result);
    if (!difference) return {};
    const JudgedValue value{difference->what, difference->second, difference->first, 0, false};
    return failed_because({{name, difference->quantity, manner_of(value)},
                           absolute_error(difference->first, difference->second),
                           0,
                           fmt::format("{} {} is {} ({}), but before it was {} ({})", when, difference->what,
                                       difference->second, hex_float(difference->second), difference->first,
                                       hex_float(difference->first)),
                           std::nullopt,
                           ""});
  }
  // Sums in another order each time are no fault; but each answer must be within the budget by itself.
  CheckOutcome outcome;
  if (!inaccuracies(c, a, name, outcome.doubtful, nullptr).empty())
    return not_applicable_because("the answer before is not accurate.");
  outcome.failed = inaccuracies(c, b, name, outcome.doubtful, nullptr);
  for (Failed& failed : outcome.failed) failed.text = fmt::format("{} {}", when, failed.text);
  return outcome;
}

CheckOutcome Examination::deterministic() {
  const Outcome again = subject_.evaluate(case_, recipe_.layout, second_fill);
  return same_again(check_name::deterministic, "at once again,", case_, first(), again);
}

CheckOutcome Examination::stateless(int choice) {
  // What may be left behind: the same shapes with other numbers, NaN, a larger case, any other case.
  Recipe other = recipe_;
  switch (choice % 4) {
    case 0: other.spec.seed += 1 + static_cast<std::uint64_t>(choice); break;
    case 1: other.edits.push_back({TensorName::student_input, choice, nan}); break;
    case 2:
      other.spec.tokens += 1 + choice / 4;
      other.spec.vocab = 2 * other.spec.vocab + 1;
      break;
    default:
      other = random_recipe(splitmix64(0x73746174656c6573, static_cast<std::uint64_t>(choice)));
      other.spec.options.valid_vocab.reset();
  }
  other = adapted(std::move(other), subject_.declaration().lacks);
  const Case between = make_case(other);
  if (!(needed_features(between) & subject_.declaration().lacks).empty())
    return not_applicable_because("the case in between needs what the candidate lacks.");
  first();
  const Outcome after_first = subject_.evaluate(between, other.layout);
  const Outcome again = subject_.evaluate(case_, recipe_.layout, second_fill);
  CheckOutcome outcome = same_again(check_name::stateless, "after another case,", case_, first(), again);
  if (!outcome.failed.empty() || choice % 4 != 0) return outcome;
  // Something that was kept from the first case, and is still there, would make both its answers the same. So
  // the case in between is asked for once more, after one of other shapes.
  clear_caches(subject_, recipe_);
  const Outcome after_others = subject_.evaluate(between, other.layout, second_fill);
  return same_again(check_name::stateless,
                    "for the same shapes with other numbers, after a case of other shapes,", between,
                    after_first, after_others);
}

void clear_caches(Subject& subject, const Recipe& recipe) {
  Recipe other;
  other.spec.tokens = recipe.spec.tokens == 1 ? 2 : 1;
  other.spec.student_hidden = recipe.spec.student_hidden == 3 ? 2 : 3;
  other.spec.vocab = recipe.spec.vocab == 4 ? 5 : 4;
  for (int i = 0; i < 2; ++i) {
    other.spec.seed = static_cast<std::uint64_t>(i);
    subject.evaluate(make_case(other));
    ++other.spec.tokens;
  }
}

}  // namespace fljsd
