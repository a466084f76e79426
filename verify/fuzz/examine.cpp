// SPDX-License-Identifier: Apache-2.0
#include "verify/fuzz/examine.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "verify/cases/random.h"
#include "verify/fuzz/case_copy.h"
#include "verify/fuzz/difference.h"
#include "verify/judge/verdict.h"
#include "verify/properties/compare.h"
#include "verify/report/number.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// What result buffers hold at the second evaluation: a number, because a forgotten element may be NaN by
// right.
constexpr double second_fill = -7.5;

// Thrown through a property when the candidate has no answer for one of its cases, and when gradients cannot
// be judged but the property could not know.
struct NoAnswer {
  Outcome outcome;
};
struct NotJudged {
  std::string reason;
};

CheckOutcome not_applicable_because(std::string reason) {
  CheckOutcome outcome;
  outcome.applicable = false;
  outcome.reason = std::move(reason);
  return outcome;
}

CheckOutcome failed_because(Failed failed) {
  CheckOutcome outcome;
  outcome.failed.push_back(std::move(failed));
  return outcome;
}

// Findings end their sentences themselves, and the sign of a NaN is nobody's affair.
std::string without_period(std::string text) {
  for (std::size_t at; (at = text.find("-nan")) != std::string::npos;) text.erase(at, 1);
  if (!text.empty() && text.back() == '.') text.pop_back();
  return text;
}

Failed no_answer(const std::string& check, const Failure& failure) {
  return {{check, "", name(failure.kind)}, infinity,     0,
          without_period(failure.text),    std::nullopt, failure.diagnostics};
}

// The quantity that a property's sentence is about: they all name it first.
std::string quantity_in(const std::string& text) {
  std::string found;
  std::size_t first = std::string::npos;
  for (const char* quantity :
       {"token_loss", "student_input_grad", "student_weight_grad", "student_bias_grad", "loss"}) {
    const std::size_t at = text.find(quantity);
    if (at >= first) continue;  // "loss" is found within "token_loss", but later
    first = at;
    found = quantity;
  }
  if (found.empty() && text.find("bias gradient") != std::string::npos) found = "student_bias_grad";
  return found;
}

const char* manner_of(double observed) {
  return std::isfinite(observed) ? manner::off : manner::not_finite;
}

// KL(p‖q) is infinite where an entry has p > 0 and q = 0. Whether such entries have, for the token, less
// probability together than fp32's smallest normal number (with a margin for the logits' rounding), so that
// an implementation of fp32 may well say that they have none.
bool infinite_by_underflow(const Case& c, Index token) {
  constexpr double smallest = 0x1p-126 * 1e6;
  const LogitRows<double> row = logits<double>(c.problem(), c.options, token);
  const bool forward = c.options.beta == 0;
  const std::vector<double>& weight = forward ? row.teacher : row.student;
  const std::vector<double>& support = forward ? row.student : row.teacher;
  const double max = *std::max_element(weight.begin(), weight.end());
  double outside = 0, total = 0;
  for (std::size_t v = 0; v < weight.size(); ++v) {
    const double share = std::exp(weight[v] - max);
    total += share;
    if (support[v] == -infinity) outside += share;
  }
  return outside < smallest * total;
}

// The same for a row of a verdict: the token that it names, or all whose loss is infinite.
bool infinite_by_underflow(const Case& c, const VerdictRow& row, const std::vector<double>& true_token_loss) {
  if (row.quantity == "token_loss" && row.worst >= 0) return infinite_by_underflow(c, row.worst);
  for (std::size_t t = 0; t < true_token_loss.size(); ++t)
    if (std::isinf(true_token_loss[t]) && !infinite_by_underflow(c, static_cast<Index>(t))) return false;
  return true;
}

// Whether the oracle's own error is not far below what the error exceeds its budget by.
bool may_be_the_oracles(const VerdictRow& row, const JudgedValue& value, double own_bound) {
  const double excess = std::isfinite(value.truth) ? row.error - row.budget : infinity;
  return !(own_bound <= excess / 16) || (std::isinf(excess) && std::isinf(own_bound));
}

}  // namespace

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

// What is learnt about the cases of a property while it is checked.
struct Examination::InPassing {
  std::vector<FindingKind> inaccurate;
};

std::vector<Failed> Examination::inaccuracies(const Case& c, const Answer& answer, const char* check,
                                              bool& doubtful, std::vector<VerdictRow>* rows) {
  const AccuracyClass declared = subject_.declaration().accuracy_class;
  const auto judged = [&](const OracleAnswer& oracle) {
    return judge(oracle.budgets, oracle.truth, answer.result, declared, answer.loss_format);
  };
  const OracleAnswer* oracle = certified_ && &c == &case_ ? &*certified_ : &oracle_.answer(c);
  Verdict verdict = judged(*oracle);
  if (rows) *rows = verdict.rows;

  std::optional<OracleAnswer> certified;
  bool asked = false;
  std::vector<Failed> failed;
  for (std::size_t i = 0; i < verdict.rows.size(); ++i) {
    if (verdict.rows[i].pass) continue;
    const auto value = [&] {
      return worst_value(verdict.rows[i], oracle->truth, answer.result, oracle->budgets.of(declared));
    };
    const JudgedValue worst = value();
    // fp32 cannot see an infinity that rests on probabilities that it does not have.
    if (std::isinf(worst.truth) && std::isfinite(worst.got) && declared != AccuracyClass::float64 &&
        infinite_by_underflow(c, verdict.rows[i], oracle->truth.result.token_loss))
      continue;
    if (!oracle->truth.certified &&
        may_be_the_oracles(verdict.rows[i], worst,
                           own_bound(verdict.rows[i], oracle->budgets.truth, oracle->budgets.of(declared)))) {
      if (!asked) certified = oracle_.certified(c);
      asked = true;
      if (!certified) {
        doubtful = true;
        continue;
      }
      // Once more from the start, with the better oracle.
      oracle = &*certified;
      verdict = judged(*oracle);
      failed.clear();
      i = static_cast<std::size_t>(-1);
      continue;
    }
    const VerdictRow& row = verdict.rows[i];
    if (std::any_of(failed.begin(), failed.end(),
                    [&](const Failed& f) { return f.kind.quantity == row.quantity; }))
      continue;  // another measure of the same numbers
    Failed f;
    f.kind = {check, row.quantity, manner_of(worst)};
    f.observed = row.error;
    f.allowed = row.budget;
    f.text = sentence(row, worst, declared);
    f.value = worst;
    failed.push_back(std::move(f));
  }
  if (!failed.empty()) doubtful = false;
  std::stable_sort(failed.begin(), failed.end(), [](const Failed& a, const Failed& b) {
    return rank_of_quantity(a.kind.quantity) < rank_of_quantity(b.kind.quantity);
  });
  return failed;
}

CheckOutcome Examination::accuracy() {
  CheckOutcome outcome;
  outcome.failed =
      inaccuracies(case_, std::get<Answer>(first()), check_name::accuracy, outcome.doubtful, &rows_);
  for (const VerdictRow& row : rows_) {
    if (!row.judged || row.ratio * outcome.allowed < outcome.observed) continue;
    outcome.observed = row.error;
    outcome.allowed = row.budget;
  }
  return outcome;
}

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

Implementation Examination::implementation(bool always_evaluate, InPassing& in_passing) {
  const Declaration& declaration = subject_.declaration();
  Implementation adaptor;
  adaptor.name = subject_.name();
  adaptor.lacks = declaration.lacks;
  adaptor.deterministic = declaration.deterministic;
  adaptor.exact_zeros = false;  // a candidate's formula is its own affair
  if (declaration.accuracy_class != AccuracyClass::float64) {
    // As the contracts of these classes allow (verify/judge/budget.cpp).
    adaptor.smallest = 0x1p-126;
    adaptor.largest = std::numeric_limits<float>::max();
    const auto is_f16 = [](const Tensor& tensor) { return tensor.dtype == DType::f16; };
    if (is_f16(case_.student_input) || is_f16(case_.student_weight) ||
        (case_.student_bias && is_f16(*case_.student_bias))) {
      // Gradients stored in f16 underflow soon, so that scaling a case by 2^k changes bits.
      adaptor.smallest = 0x1p-24;
      adaptor.largest = 65504;
      adaptor.deterministic = false;
    }
  }

  const auto result_of = [this, &in_passing](const Case& c, Outcome outcome) {
    auto* answer = std::get_if<Answer>(&outcome);
    if (!answer) throw NoAnswer{std::move(outcome)};
    const OracleAnswer& oracle = oracle_.answer(c);
    if (!subject_.has_token_loss() && subject_.has_grad() && oracle.budgets.gradients_not_judged)
      throw NotJudged{*oracle.budgets.gradients_not_judged};
    bool doubtful = false;
    for (const Failed& failed : inaccuracies(c, *answer, check_name::accuracy, doubtful, nullptr))
      in_passing.inaccurate.push_back(failed.kind);
    return std::move(answer->result);
  };
  adaptor.compute = [this, always_evaluate, own = fingerprint(case_), result_of](const Case& c) {
    if (!always_evaluate && fingerprint(c) == own) return result_of(c, first());
    return result_of(c, subject_.evaluate(c));
  };
  if (subject_.takes_views()) {
    adaptor.compute_views = [this](const Problem& problem, const Options& options) {
      Outcome outcome = subject_.evaluate(problem, options);
      if (auto* answer = std::get_if<Answer>(&outcome)) return std::move(answer->result);
      throw NoAnswer{std::move(outcome)};
    };
  }
  adaptor.bound = [this](const Case& c, const Result&) { return oracle_.allowed(c); };
  return adaptor;
}

CheckOutcome Examination::property(const std::string& name, int choice) {
  const Property& property = find_property(name);
  CheckOutcome outcome;
  InPassing in_passing;
  try {
    const Implementation adaptor = implementation(name == "rerun", in_passing);
    const PropertyOutcome result = property.check(case_, adaptor, static_cast<std::uint64_t>(choice));
    if (!result.applicable) return not_applicable_because(result.text);
    outcome.observed = result.observed;
    outcome.allowed = result.allowed;
    if (!result.passed) {
      outcome.failed.push_back({{name, quantity_in(result.text), manner_of(result.observed)},
                                result.observed,
                                result.allowed,
                                without_period(result.text),
                                std::nullopt,
                                ""});
    }
  } catch (const NoAnswer& none) {
    if (const auto* unsupported = std::get_if<Unsupported>(&none.outcome))
      return not_applicable_because(unsupported->text);
    Failed failed = no_answer(name, std::get<Failure>(none.outcome));
    failed.text = fmt::format("one of the property's cases: {}", failed.text);
    outcome.failed.push_back(std::move(failed));
  } catch (const NotJudged& not_judged) {
    return not_applicable_because(not_judged.reason);
  } catch (const InvalidProblem& invalid) {
    return not_applicable_because(invalid.what());
  }
  outcome.inaccurate = std::move(in_passing.inaccurate);
  return outcome;
}

Recipe adapted(Recipe recipe, const FeatureSet& lacks) {
  Options& options = recipe.spec.options;
  CaseSpec& spec = recipe.spec;
  if (lacks.has(Feature::beta_endpoints) && (options.beta == 0 || options.beta == 1)) options.beta = 0.5;
  if (lacks.has(Feature::temperature)) options.temperature = 1;
  if (lacks.has(Feature::labels)) {
    recipe.ignored_percent.reset();
    recipe.poisoned = false;
  }
  if (lacks.has(Feature::bias)) recipe.biases = Biases::family;
  if (lacks.has(Feature::valid_vocab)) options.valid_vocab.reset();
  if (lacks.has(Feature::hidden_differ)) spec.teacher_hidden = 0;
  if (lacks.has(Feature::reduction_sum) && options.reduction == Reduction::sum)
    options.reduction = Reduction::batchmean;
  if ((lacks.has(Feature::reduction_none) || lacks.has(Feature::token_loss)) &&
      options.reduction == Reduction::none)
    options.reduction = Reduction::batchmean;
  const auto lacks_format = [&](DType dtype) {
    return (dtype == DType::f16 && lacks.has(Feature::f16)) ||
           (dtype == DType::f32 && lacks.has(Feature::f32)) ||
           (dtype == DType::f64 && lacks.has(Feature::f64));
  };
  if (lacks_format(spec.dtype)) spec.dtype = DType::bf16;
  std::erase_if(recipe.dtypes, [&](const auto& entry) { return lacks_format(entry.second); });
  return recipe;
}

}  // namespace fljsd
