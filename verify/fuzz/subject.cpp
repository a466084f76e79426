// SPDX-License-Identifier: Apache-2.0
#include "verify/fuzz/subject.h"

#include <exception>
#include <new>

#include <fmt/format.h>

#include "verify/fuzz/case_copy.h"

namespace fljsd {
namespace {

std::string shape_of(const RowMajorMatrix<double>& m) {
  return shape_text({m.rows(), m.cols()});
}

// What is wrong with the answer's shape, as a sentence; nothing if it is as it should be.
std::optional<std::string> wrong_shape(const Problem& problem, const Options& options, const Request& request,
                                       const Result& result) {
  const auto length = [](const char* what, const std::vector<double>& got, Index want) {
    return static_cast<Index>(got.size()) == want
               ? std::optional<std::string>()
               : fmt::format("{} has {} elements, but it must have {}.", what, got.size(), want);
  };
  const auto shape = [](const char* what, const RowMajorMatrix<double>& got, Index rows, Index cols) {
    return got.rows() == rows && got.cols() == cols ? std::optional<std::string>()
                                                    : fmt::format("{} has shape {}, but it must be {}.", what,
                                                                  shape_of(got), shape_text({rows, cols}));
  };
  if (options.reduction != Reduction::none && !result.loss) return "there is no loss.";
  if (request.token_loss)
    if (auto wrong = length("token_loss", result.token_loss, problem.tokens())) return wrong;
  if (!request.grad) return std::nullopt;
  const Index hidden = problem.student_input.cols;
  if (auto wrong = shape("student_input_grad", result.student_input_grad, problem.tokens(), hidden))
    return wrong;
  if (auto wrong = shape("student_weight_grad", result.student_weight_grad, problem.vocab(), hidden))
    return wrong;
  if (problem.student_bias) return length("student_bias_grad", result.student_bias_grad, problem.vocab());
  return std::nullopt;
}

// Leaves what was asked for: a loss of reduction `none`, for one, is nobody's business.
void drop_the_rest(const Problem& problem, const Options& options, const Request& request, Result& result) {
  if (options.reduction == Reduction::none) result.loss.reset();
  if (!request.token_loss) result.token_loss.clear();
  if (!request.grad) {
    result.student_input_grad.resize(0, 0);
    result.student_weight_grad.resize(0, 0);
  }
  if (!request.grad || !problem.student_bias) result.student_bias_grad.clear();
}

// Calls the candidate and turns whatever it does into an outcome.
template <class Call>
Outcome guarded(const Problem& problem, const Options& options, const Request& request, const Call& call) {
  Outcome outcome;
  try {
    outcome = call();
  } catch (const std::bad_alloc&) {
    return Failure{Failure::Kind::error, "it ran out of memory", ""};
  } catch (const std::exception& error) {
    return Failure{Failure::Kind::error, fmt::format("it threw: {}", error.what()), ""};
  }
  if (auto* answer = std::get_if<Answer>(&outcome)) {
    if (auto wrong = wrong_shape(problem, options, request, answer->result))
      return Failure{Failure::Kind::bad_result, std::move(*wrong), ""};
    drop_the_rest(problem, options, request, answer->result);
  }
  return outcome;
}

}  // namespace

Request Subject::request(double fill) const {
  return {has_token_loss(), has_grad(), fill};
}

Outcome Subject::evaluate(const Case& c, const Layout& layout, double fill) {
  ++evaluations_;
  const Request wanted = request(fill);
  if (takes_views() && !layout.is_plain()) {
    const LaidOutCase laid_out(c, layout);
    Outcome outcome = guarded(laid_out.problem(), c.options, wanted, [&] {
      return candidate_.compute_views(laid_out.problem(), c.options, wanted);
    });
    if (const auto changed = first_difference(c.problem(), laid_out.problem()))
      return Failure{Failure::Kind::input_modified, *changed + " was overwritten", ""};
    return outcome;
  }
  const Case copy = deep_copy(c);
  Outcome outcome =
      guarded(copy.problem(), copy.options, wanted, [&] { return candidate_.compute(copy, wanted); });
  if (const auto changed = first_difference(c.problem(), copy.problem()))
    return Failure{Failure::Kind::input_modified, *changed + " was overwritten", ""};
  return outcome;
}

Outcome Subject::evaluate(const Problem& problem, const Options& options) {
  ++evaluations_;
  const Request wanted = request(std::numeric_limits<double>::quiet_NaN());
  return guarded(problem, options, wanted,
                 [&] { return candidate_.compute_views(problem, options, wanted); });
}

}  // namespace fljsd
