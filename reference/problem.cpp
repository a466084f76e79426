// SPDX-License-Identifier: Apache-2.0
#include "reference/problem.h"

#include <cmath>
#include <sstream>

namespace fljsd {
namespace {

// Throws InvalidProblem with the parts written one after the other.
template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  std::ostringstream text;
  text.precision(17);
  (text << ... << parts);
  throw InvalidProblem(text.str());
}

std::string shape(const MatrixView& m) {
  return "[" + std::to_string(m.rows) + ", " + std::to_string(m.cols) + "]";
}

void check_matrix(const char* field, const MatrixView& m) {
  if (m.rows < 0 || m.cols < 0) refuse(field, " has shape ", shape(m), ", but sizes must not be negative.");
  if (m.row_stride < m.cols) {
    refuse(field, " has row stride ", m.row_stride, ", but it must be at least its ", m.cols, " columns.");
  }
  if (m.data == nullptr && m.rows > 0 && m.cols > 0)
    refuse(field, " has no data, but its shape is ", shape(m), ".");
}

void check_model(const char* model, const MatrixView& input, const MatrixView& weight, Index tokens,
                 Index vocab, const std::optional<VectorView>& bias) {
  const std::string prefix = model;
  check_matrix((prefix + "_input").c_str(), input);
  check_matrix((prefix + "_weight").c_str(), weight);
  if (input.cols == 0) refuse(prefix, "_input has hidden size 0, but it must be at least 1.");
  if (weight.cols != input.cols) {
    refuse(prefix, "_weight has hidden size ", weight.cols, ", but ", prefix, "_input has ", input.cols,
           " and they must be equal.");
  }
  if (input.rows != tokens) {
    refuse(prefix, "_input has ", input.rows, " tokens, but student_input has ", tokens,
           " and they must be equal.");
  }
  if (weight.rows != vocab) {
    refuse(prefix, "_weight has vocab ", weight.rows, ", but student_weight has ", vocab,
           " and they must be equal.");
  }
  if (bias && bias->size != vocab) {
    refuse(prefix, "_bias has ", bias->size, " entries, but it must have one for each of the ", vocab,
           " vocabulary entries.");
  }
  if (bias && bias->data == nullptr) refuse(prefix, "_bias has no data, but ", vocab, " entries.");
}

}  // namespace

const char* name(Reduction reduction) {
  switch (reduction) {
    case Reduction::batchmean: return "batchmean";
    case Reduction::sum: return "sum";
    case Reduction::none: return "none";
  }
  return "?";
}

Reduction parse_reduction(const std::string& text) {
  for (Reduction reduction : {Reduction::batchmean, Reduction::sum, Reduction::none}) {
    if (text == name(reduction)) return reduction;
  }
  refuse("reduction is '", text, "', but it must be batchmean, sum or none.");
}

void validate(const Problem& problem, const Options& options) {
  if (problem.vocab() == 0) refuse("student_weight has vocab 0, but it must be at least 1.");
  check_model("student", problem.student_input, problem.student_weight, problem.tokens(), problem.vocab(),
              problem.student_bias);
  check_model("teacher", problem.teacher_input, problem.teacher_weight, problem.tokens(), problem.vocab(),
              problem.teacher_bias);
  if (problem.labels && static_cast<Index>(problem.labels->size()) != problem.tokens()) {
    refuse("labels has ", problem.labels->size(), " entries, but it must have one for each of the ",
           problem.tokens(), " tokens.");
  }
  if (!(options.beta >= 0 && options.beta <= 1))
    refuse("beta is ", options.beta, ", but it must be in [0, 1].");
  if (!(options.temperature > 0 && std::isfinite(options.temperature))) {
    refuse("temperature is ", options.temperature, ", but it must be positive and finite.");
  }
  if (options.valid_vocab && (*options.valid_vocab < 1 || *options.valid_vocab > problem.vocab())) {
    refuse("valid_vocab is ", *options.valid_vocab, ", but it must be in [1, ", problem.vocab(), "].");
  }
}

Index valid_vocab(const Problem& problem, const Options& options) {
  return options.valid_vocab.value_or(problem.vocab());
}

bool is_counted(const Problem& problem, const Options& options, Index token) {
  return !problem.labels || (*problem.labels)[static_cast<std::size_t>(token)] != options.ignore_index;
}

Index count_tokens(const Problem& problem, const Options& options) {
  Index counted = 0;
  for (Index t = 0; t < problem.tokens(); ++t) counted += is_counted(problem, options, t);
  return counted;
}

Index reduction_divisor(const Options& options, Index counted) {
  return options.reduction == Reduction::batchmean && counted > 0 ? counted : 1;
}

}  // namespace fljsd
