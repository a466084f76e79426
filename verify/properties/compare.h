// SPDX-License-Identifier: Apache-2.0
// How properties compare results. NaN equals only NaN, an infinity only itself; nothing else involving them
// passes.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "verify/properties/property.h"
#include "verify/properties/transform.h"

namespace fljsd {

// A case with what the implementation says about it. The case must outlive it.
struct Evaluation {
  Evaluation(const Case& c, const Implementation& implementation);
  // With a result that was computed otherwise.
  Evaluation(const Case& c, Result r, const Implementation& implementation);

  // Whether no token's loss is NaN.
  bool all_tokens_defined() const;
  // Gradients are not judged where inputs or weights are infinite; nor the rows of tokens whose loss is
  // infinite, nor what sums over tokens when there is such a token.
  bool judges_input_grad(Index token) const;
  bool judges_weight_grad() const;

  Problem problem;
  Options options;
  Result result;
  ErrorBound bound;
  // Whether a finite case may overflow on the way: then NaN and infinity may stand for a finite value.
  bool may_overflow = false;
  // The largest finite elements that take part.
  double largest_student_input = 0, largest_student_weight = 0;

 private:
  bool infinite_tensors_ = false;
};

// Why the property does not apply: a feature that a case needs and the implementation lacks.
std::optional<PropertyOutcome> lacking(const Implementation& implementation,
                                       std::initializer_list<const Case*> cases, FeatureSet more = {});

PropertyOutcome not_applicable(std::string reason);

inline std::span<const double> row_of(const RowMajorMatrix<double>& m, Index r) {
  return {m.data() + r * m.cols(), static_cast<std::size_t>(m.cols())};
}

// What rounding `result` to double may have lost; 0 for NaN and infinities.
double rounding_of(double result);

// ‖values‖₂ without over- or underflow on the way; NaN or infinite if one of them is.
double norm(std::span<const double> values);

// Collects comparisons and remembers the worst.
class Comparison {
 public:
  // `what` names the quantity, and says "[3, 2]" where it has indices.
  // |got − expected| <= allowed. If `may_overflow` and the bound is infinite, NaN and infinities pass.
  void equal(const std::string& what, double got, double expected, double allowed, bool may_overflow = false);
  // got <= limit + allowed.
  void at_most(const std::string& what, double got, double limit, double allowed, bool may_overflow = false);
  // ‖got − expected‖₂ <= allowed for two rows of the same length.
  void equal_rows(const std::string& what, std::span<const double> got, std::span<const double> expected,
                  double allowed, bool may_overflow = false);
  void fail(std::string text);

  PropertyOutcome outcome() const { return outcome_; }

 private:
  void record(double observed, double allowed, bool passed, const std::string& text);

  PropertyOutcome outcome_;
  double worst_ratio_ = -1;
};

// The exact answer of a case B as a linear function of the exact answer of a case A.
struct Correspondence {
  // B's quantity is this factor times A's.
  double loss = 1, token_loss = 1, input_grad = 1, weight_grad = 1, bias_grad = 1;
  // Token t of B is token tokens[t] of A, vocabulary entry v of B is entry vocab[v] of A, column h of B is
  // column hidden[h] of A times hidden_sign[h]. −1: zero. Absent: the same.
  std::optional<Indices> tokens, vocab, hidden;
  std::vector<double> hidden_sign;
  bool gradients = true;  // false: only the losses correspond
  // Gradients are scaled by powers of two, and may be rounded differently where they underflow.
  bool scaled = false;
};

// Checks B against f(A), f the correspondence: equal bits (`bitwise` and the implementation is
// deterministic), or |B − f(A)| <= bound(B) + f(bound(A)) with f taken by absolute values.
PropertyOutcome expect_correspondence(const Evaluation& a, const Evaluation& b, const Correspondence& f,
                                      const Implementation& implementation, Exactness exactness);

// The same for two cases; does not apply where the implementation lacks what either needs.
PropertyOutcome expect_correspondence(const Case& a, const Case& b, const Correspondence& f,
                                      const Implementation& implementation, Exactness exactness);

}  // namespace fljsd
