// SPDX-License-Identifier: Apache-2.0
// Properties of the catalogue, with the candidate behind the interface that they are stated for.
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "verify/fuzz/case_copy.h"
#include "verify/fuzz/difference.h"
#include "verify/fuzz/examine.h"
#include "verify/fuzz/outcome.h"

namespace fljsd {
namespace {

// Thrown through a property when the candidate has no answer for one of its cases, and when gradients cannot
// be judged but the property could not know.
struct NoAnswer {
  Outcome outcome;
};
struct NotJudged {
  std::string reason;
};

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

}  // namespace

// What is learnt about the cases of a property while it is checked.
struct Examination::InPassing {
  std::vector<FindingKind> inaccurate;
};

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

}  // namespace fljsd
