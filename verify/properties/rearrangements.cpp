// SPDX-License-Identifier: Apache-2.0
// Properties with a bound, of the form: the exact answer of B is a linear function f of the exact answer of
// A. Then
//
//   |computed(B) − f(computed(A))| <= |computed(B) − exact(B)| + |f(exact(A)) − f(computed(A))|,
//
// and each part is within the implementation's own bound for that case. What is stated above each check is
// why the exact answers correspond, and that the transformation itself rounds nothing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/real.h"
#include "verify/cases/random.h"
#include "verify/properties/checks.h"
#include "verify/properties/compare.h"

namespace fljsd::checks {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double unit = 0x1p-53;

Correspondence losses_only() {
  Correspondence f;
  f.gradients = false;
  return f;
}

PropertyOutcome bounded(const Case& a, const Case& b, const Correspondence& f,
                        const Implementation& implementation) {
  return expect_correspondence(a, b, f, implementation, Exactness::bounded);
}

// The bias plus one number, or a new bias of that number, if the sum is exact.
std::optional<Tensor> shifted_bias(const std::optional<Tensor>& bias, Index vocab, double shift) {
  if (bias) return shifted(*bias, shift);
  return make_tensor(DType::bf16, {vocab}, std::vector<double>(static_cast<std::size_t>(vocab), shift));
}

// The bias with its entries from `first` on set to −inf; zeros where there is none.
Tensor removing_bias(const std::optional<Tensor>& bias, Index vocab, Index first) {
  std::vector<double> values = bias ? elements(*bias) : std::vector<double>(static_cast<std::size_t>(vocab));
  for (Index v = first; v < vocab; ++v) values[static_cast<std::size_t>(v)] = -infinity;
  return make_tensor(bias ? bias->dtype : DType::bf16, {vocab}, values);
}

// The matrix with one column more, whose elements are 0, widest or −widest, in the first of its own format,
// f32 and f64 that holds them.
Tensor append_column(const Tensor& matrix, const std::vector<double>& column, double widest) {
  const Index cols = matrix.shape[1];
  DType dtype = matrix.dtype;
  for (const DType wider : {DType::f32, DType::f64})
    if (round_to(dtype, widest) != widest) dtype = wider;
  const std::vector<double> old = elements(matrix);
  std::vector<double> values;
  for (std::size_t r = 0; r < column.size(); ++r) {
    const auto row = old.begin() + static_cast<Index>(r) * cols;
    values.insert(values.end(), row, row + cols);
    values.push_back(column[r]);
  }
  return make_tensor(dtype, {matrix.shape[0], cols + 1}, values);
}

// 2 or −2 to the power −2 .. 8, a power of two that bf16 holds.
double draw_shift(std::uint64_t seed, Index number) {
  const Random random(seed, 0x7368696674);
  return std::ldexp(random.below(2 * number, 2) == 0 ? 1.0 : -1.0,
                    static_cast<int>(random.below(2 * number + 1, 11)) - 2);
}

}  // namespace

// softmax(x + c) = softmax(x): a number added to every logit of a model changes no probability. It is added
// to the bias, where it is exact.
PropertyOutcome shifted_logits(const Case& c, const Implementation& implementation, std::uint64_t seed) {
  const Index vocab = c.student_weight.shape[0];
  Case moved = c;
  moved.student_bias = shifted_bias(c.student_bias, vocab, draw_shift(seed, 0));
  moved.teacher_bias = shifted_bias(c.teacher_bias, vocab, draw_shift(seed, 1));
  if (!moved.student_bias || !moved.teacher_bias)
    return not_applicable("the shift of the bias is not exact in any format.");
  return bounded(c, moved, {}, implementation);
}

// Sums over the vocabulary do not depend on its order; the gradients' rows move with their entries.
PropertyOutcome permuted_vocabulary(const Case& c, const Implementation& implementation, std::uint64_t seed) {
  const Case valid = with_valid_vocab_only(c);
  Correspondence f;
  f.vocab = permutation(valid.student_weight.shape[0], seed);
  return bounded(valid, with_vocab(valid, *f.vocab), f, implementation);
}

// Dot products do not depend on the order of their terms; the gradients' columns move with the hidden units.
PropertyOutcome permuted_hidden(const Case& c, const Implementation& implementation, std::uint64_t seed) {
  Correspondence f;
  f.hidden = permutation(c.student_input.shape[1], seed);
  return bounded(c, with_hidden(c, *f.hidden, permutation(c.teacher_input.shape[1], seed + 1)), f,
                 implementation);
}

// Tokens are independent of each other; sums over them do not depend on their order.
PropertyOutcome permuted_tokens(const Case& c, const Implementation& implementation, std::uint64_t seed) {
  Correspondence f;
  f.tokens = permutation(c.student_input.shape[0], seed);
  return bounded(c, with_tokens(c, *f.tokens), f, implementation);
}

// Entries at or past valid_vocab do not exist: without them the problem is the same.
PropertyOutcome deleted_padding_entries(const Case& c, const Implementation& implementation, std::uint64_t) {
  const Index vocab = c.student_weight.shape[0], valid = valid_vocab(c.problem(), c.options);
  if (valid == vocab) return not_applicable("every entry is valid.");
  Correspondence f;
  f.vocab = identity(vocab);
  for (Index v = valid; v < vocab; ++v) (*f.vocab)[static_cast<std::size_t>(v)] = -1;
  return bounded(with_valid_vocab_only(c), c, f, implementation);
}

// An entry with logit −inf under both models has probability e^{−inf} = 0 under both, and every term of it is
// 0: up to three such entries are appended. Their gradients are 0 because q_v = 0.
PropertyOutcome removed_entries(const Case& c, const Implementation& implementation, std::uint64_t seed) {
  const Case valid = with_valid_vocab_only(c);
  const Index vocab = valid.student_weight.shape[0];
  const Index more = 1 + Random(seed, 0x72656d6f7665).below(0, 3);
  Case longer = valid;
  longer.student_weight = append_rows(valid.student_weight, more, 1);
  longer.teacher_weight = append_rows(valid.teacher_weight, more, -1);
  for (std::optional<Tensor>* bias : {&longer.student_bias, &longer.teacher_bias}) {
    if (*bias) *bias = append_rows(**bias, more, 0);
    *bias = removing_bias(*bias, vocab + more, vocab);
  }
  if (auto outcome = lacking(implementation, {&valid, &longer})) return *outcome;
  const Evaluation without(valid, implementation), with(longer, implementation);
  Correspondence f;
  f.vocab = identity(vocab);
  f.vocab->resize(static_cast<std::size_t>(vocab + more), -1);
  // An undefined token makes the gradients of all valid entries NaN, of the appended ones too: also one that
  // only overflow makes undefined, and that the comparison of the losses excuses. Nor are gradients of
  // infinite losses judged, and an appended entry is no padding, whose gradient would be 0 all the same.
  f.gradients = without.all_tokens_defined() && with.all_tokens_defined() && with.judges_weight_grad();
  return expect_correspondence(without, with, f, implementation, Exactness::bounded);
}

// Up to three entries are appended whose logits are −A² in exact arithmetic, A² >= 4·(largest logit of the
// implementation), beside logits that it can hold: their probabilities are below e^{−2·largest/T}, 0 as far
// as any bound goes. Case A has the same shapes and removes them by biases of −inf; in case B they have
// weights −A in a hidden unit whose input is A, and the other entries have 0 there, which adds nothing to
// their logits. A logit is finite where A's bound is, and that of the appended ones is one product, −infinity
// in any order of summation: so A's bound is B's too.
PropertyOutcome entries_beyond_range(const Case& c, const Implementation& implementation,
                                     std::uint64_t seed) {
  const Case valid = with_valid_vocab_only(c);
  // Results in fp16 overflow sooner than logits do, which have the range of fp32 at least.
  const double largest = std::max<double>(implementation.largest, std::numeric_limits<float>::max());
  const double big = std::exp2(std::ceil((std::log2(largest) + 2) / 2));
  if (!(largest / valid.options.temperature > 4096))
    return not_applicable("the temperature brings such logits back.");
  const Index vocab = valid.student_weight.shape[0];
  const Index more = 1 + Random(seed, 0x6265796f6e64).below(0, 3);
  const auto with_unit = [&](double weight_of_appended) {
    Case to = valid;
    std::vector<double> column(static_cast<std::size_t>(vocab + more));
    std::fill(column.begin() + vocab, column.end(), weight_of_appended);
    for (auto [input, weight] : {std::pair{&to.student_input, &to.student_weight},
                                 std::pair{&to.teacher_input, &to.teacher_weight}}) {
      const std::vector<double> bigs(static_cast<std::size_t>(input->shape[0]), big);
      *input = append_column(*input, bigs, big);
      *weight = append_column(append_rows(*weight, more, 0), column, big);
    }
    for (std::optional<Tensor>* bias : {&to.student_bias, &to.teacher_bias})
      if (*bias) *bias = append_rows(**bias, more, 0);
    return to;
  };
  const Case longer = with_unit(-big);
  Case removed = with_unit(0);
  for (std::optional<Tensor>* bias : {&removed.student_bias, &removed.teacher_bias})
    *bias = removing_bias(*bias, vocab + more, vocab);
  if (auto outcome = lacking(implementation, {&removed, &longer})) return *outcome;
  const Evaluation without(removed, implementation);
  Evaluation with(longer, implementation);
  with.bound = without.bound;
  with.may_overflow = without.may_overflow;
  // As in removed_entries. A case without student_bias has no gradient of it.
  Correspondence f;
  f.gradients = without.all_tokens_defined() && with.all_tokens_defined() && with.judges_weight_grad();
  return expect_correspondence(without, with, f, implementation, Exactness::bounded);
}

// Every entry stands twice. Then each copy has half the probability under both models: all ratios p/q, p/M
// and q/M are the same, and the sums over twice the entries of halved terms too. (Subtracting log 2 from
// every bias would keep the logits' log-sum-exp; it changes no probability.) The gradient of an entry is
// shared equally by its copies, and dX = Σ_v G_v·W_v is the same.
PropertyOutcome duplicated_vocabulary(const Case& c, const Implementation& implementation, std::uint64_t) {
  const Case valid = with_valid_vocab_only(c);
  Correspondence f;
  f.vocab = identity(valid.student_weight.shape[0]);
  f.vocab->insert(f.vocab->end(), f.vocab->begin(), f.vocab->end());
  f.weight_grad = f.bias_grad = 0.5;
  return bounded(valid, with_vocab(valid, *f.vocab), f, implementation);
}

// The batch 2^k times over: a mean stays, a sum is multiplied by 2^k, and so is what sums over tokens. With
// batchmean a token's share of the loss, and its row of dX, is divided by 2^k.
PropertyOutcome repeated_batch(const Case& c, const Implementation& implementation, std::uint64_t seed) {
  const int k = 1 + static_cast<int>(Random(seed, 0x726570656174).below(0, 2));
  const double copies = std::ldexp(1.0, k);
  Correspondence f;
  f.tokens.emplace();
  for (int i = 0; i < 1 << k; ++i)
    for (Index t = 0; t < c.student_input.shape[0]; ++t) f.tokens->push_back(t);
  if (c.options.reduction == Reduction::batchmean) {
    f.input_grad = 1 / copies;
  } else {
    f.loss = f.weight_grad = f.bias_grad = copies;
  }
  return bounded(c, with_tokens(c, *f.tokens), f, implementation);
}

// With reduction `sum`, a batch is the sum of its two halves: losses, dW and bias gradients add up, the rows
// of dX are those of the halves. Adding the two computed numbers here rounds once more.
PropertyOutcome split_batch(const Case& c, const Implementation& implementation, std::uint64_t seed) {
  const Index tokens = c.student_input.shape[0];
  if (tokens < 2) return not_applicable("there are fewer than two tokens.");
  const Case whole = with_reduction(c, Reduction::sum);
  const Index cut = 1 + Random(seed, 0x73706c6974).below(0, tokens - 1);
  const Indices all = identity(tokens);
  const Case first_case = with_tokens(whole, {all.begin(), all.begin() + cut});
  const Case second_case = with_tokens(whole, {all.begin() + cut, all.end()});
  if (auto outcome = lacking(implementation, {&whole, &first_case, &second_case})) return *outcome;

  // The two halves put together, with the bounds that belong to them, as if it were one evaluation.
  Evaluation joined(whole, implementation);
  const Evaluation all_at_once = joined;
  const Evaluation first(first_case, implementation), second(second_case, implementation);
  joined.may_overflow = first.may_overflow || second.may_overflow;
  const auto add = [](double& bound, double a, double b) { bound = a + b; };
  if (joined.result.loss) {
    joined.result.loss = *first.result.loss + *second.result.loss;
    add(joined.bound.loss, first.bound.loss, second.bound.loss + rounding_of(*joined.result.loss));
  }
  const auto concatenate = [](const auto& a, const auto& b, auto& out) {
    out = a;
    out.insert(out.end(), b.begin(), b.end());
  };
  concatenate(first.result.token_loss, second.result.token_loss, joined.result.token_loss);
  concatenate(first.bound.token_loss, second.bound.token_loss, joined.bound.token_loss);
  concatenate(first.bound.student_input_grad, second.bound.student_input_grad,
              joined.bound.student_input_grad);
  auto& input_grad = joined.result.student_input_grad;
  if (input_grad.size() > 0) input_grad << first.result.student_input_grad, second.result.student_input_grad;
  auto& weight_grad = joined.result.student_weight_grad;
  if (weight_grad.size() > 0) {
    weight_grad = first.result.student_weight_grad + second.result.student_weight_grad;
    for (Index v = 0; v < weight_grad.rows(); ++v) {
      const auto i = static_cast<std::size_t>(v);
      add(joined.bound.student_weight_grad[i], first.bound.student_weight_grad[i],
          second.bound.student_weight_grad[i] + rounding_of(norm(row_of(weight_grad, v))));
    }
  }
  auto& bias_grad = joined.result.student_bias_grad;
  for (std::size_t v = 0; v < bias_grad.size(); ++v) {
    bias_grad[v] = first.result.student_bias_grad[v] + second.result.student_bias_grad[v];
    add(joined.bound.student_bias_grad[v], first.bound.student_bias_grad[v],
        second.bound.student_bias_grad[v] + rounding_of(bias_grad[v]));
  }
  return expect_correspondence(joined, all_at_once, {}, implementation, Exactness::bounded);
}

// (3a·w + 3b)/(3T) = (a·w + b)/T. Of the gradients, dX = G·W/(3T) and G/(3T) shrink to a third, and dW =
// Gᵀ·3A/(3T) is the same. Three times a number with few bits is exact in the next wider format.
PropertyOutcome temperature_in_inputs(const Case& c, const Implementation& implementation, std::uint64_t) {
  constexpr double factor = 3;
  const auto times = [](const std::optional<Tensor>& tensor) {
    return tensor ? multiplied(*tensor, factor) : std::nullopt;
  };
  const auto student_input = multiplied(c.student_input, factor);
  const auto teacher_input = multiplied(c.teacher_input, factor);
  Case tripled = c;
  tripled.student_bias = times(c.student_bias);
  tripled.teacher_bias = times(c.teacher_bias);
  tripled.options.temperature = factor * c.options.temperature;
  if (!student_input || !teacher_input || tripled.student_bias.has_value() != c.student_bias.has_value() ||
      tripled.teacher_bias.has_value() != c.teacher_bias.has_value() ||
      std::fma(factor, c.options.temperature, -tripled.options.temperature) != 0)
    return not_applicable("three times the inputs or the temperature is not exact in any format.");
  tripled.student_input = *student_input;
  tripled.teacher_input = *teacher_input;
  Correspondence f;
  f.input_grad = f.bias_grad = factor;
  return bounded(tripled, c, f, implementation);  // the plain case as a function of the tripled one
}

// A value is a value in whatever format it is stored: each tensor is widened to one that holds it.
PropertyOutcome wider_dtypes(const Case& c, const Implementation& implementation, std::uint64_t seed) {
  const Random random(seed, 0x7769646572);
  Case wider = c;
  Index number = 0;
  const auto widen = [&](Tensor& tensor) {
    const bool to_f64 = random.below(number++, 2) == 0 || tensor.dtype == DType::f32;
    const DType target = tensor.dtype == DType::f64 || to_f64 ? DType::f64 : DType::f32;
    tensor = *with_dtype(tensor, target);
  };
  for (Tensor* tensor :
       {&wider.student_input, &wider.student_weight, &wider.teacher_input, &wider.teacher_weight})
    widen(*tensor);
  for (std::optional<Tensor>* bias : {&wider.student_bias, &wider.teacher_bias})
    if (*bias) widen(**bias);
  return bounded(c, wider, {}, implementation);
}

// D_beta(p, q) = D_{1−beta}(q, p): M is the same mixture, named from the other end; at the endpoints KL(p‖q)
// is the other divergence of the exchanged pair. beta is first moved to the nearest value for which 1−beta is
// exact.
PropertyOutcome swapped_models(const Case& c, const Implementation& implementation, std::uint64_t) {
  const double other = 1 - c.options.beta;  // rounded; 1 − other is exact
  const Case plain = with_beta(c, 1 - other), swapped = with_beta(with_models_swapped(c), other);
  return bounded(plain, swapped, losses_only(), implementation);
}

// Equal models have D = 0, the minimum, and hence a zero gradient, for every beta. The teacher's hidden units
// stand in another order, so that its logits are not rounded in the same way. The exact answer is 0, so the
// implementation's bound is the whole tolerance.
PropertyOutcome equal_models(const Case& c, const Implementation& implementation, std::uint64_t seed) {
  Case equal = with_equal_models(c);
  equal = with_hidden(equal, identity(equal.student_input.shape[1]),
                      permutation(equal.teacher_input.shape[1], seed));
  if (auto outcome = lacking(implementation, {&equal})) return *outcome;
  const Evaluation evaluation(equal, implementation);
  Evaluation zero = evaluation;
  zero.bound.loss = 0;
  for (std::vector<double>* bounds : {&zero.bound.token_loss, &zero.bound.student_input_grad,
                                      &zero.bound.student_weight_grad, &zero.bound.student_bias_grad})
    std::fill(bounds->begin(), bounds->end(), 0.0);
  // 0 where there is a distribution; a NaN stays one.
  const auto clear = [](double x) { return std::isnan(x) ? x : 0.0; };
  if (zero.result.loss) zero.result.loss = clear(*zero.result.loss);
  for (double& x : zero.result.token_loss) x = clear(x);
  zero.result.student_input_grad = zero.result.student_input_grad.unaryExpr(clear).eval();
  zero.result.student_weight_grad = zero.result.student_weight_grad.unaryExpr(clear).eval();
  for (double& x : zero.result.student_bias_grad) x = clear(x);
  return expect_correspondence(zero, evaluation, {}, implementation, Exactness::bounded);
}

// Σ_v dD/dx_v = 0 for each token, because D does not change when one number is added to all logits of a row.
// So the bias gradients add up to 0, and so does every column of dW = Gᵀ·A. A sum of numbers that are each
// within their bound is within the sum of the bounds (for rows, in the 2-norm); the compensated sum here adds
// a relative error of 2u of the terms' magnitudes at most.
PropertyOutcome gradient_sums(const Case& c, const Implementation& implementation, std::uint64_t) {
  if (auto outcome = lacking(implementation, {&c}, {Feature::grad})) return *outcome;
  const Evaluation evaluation(c, implementation);
  if (!evaluation.judges_weight_grad()) return not_applicable("gradients of infinite losses are not judged.");
  const Result& result = evaluation.result;
  if (!evaluation.all_tokens_defined()) return not_applicable("a token has no distribution.");
  // Where fp32 may overflow an element may be infinite or NaN, and so would be every sum with it.
  const auto is_bounded = [](const std::vector<double>& bounds) {
    return std::all_of(bounds.begin(), bounds.end(), [](double bound) { return std::isfinite(bound); });
  };
  if (!is_bounded(evaluation.bound.student_bias_grad) || !is_bounded(evaluation.bound.student_weight_grad))
    return not_applicable("a row of the gradient has no finite bound.");
  Comparison comparison;
  if (!result.student_bias_grad.empty()) {
    Sum<double> sum, magnitude, allowed;
    for (const double g : result.student_bias_grad) {
      sum.add(g);
      magnitude.add(std::abs(g));
    }
    for (const double bound : evaluation.bound.student_bias_grad) allowed.add(bound);
    comparison.equal("the sum of the bias gradient", sum.value(), 0,
                     allowed.value() + 2 * unit * magnitude.value(), evaluation.may_overflow);
  }
  const RowMajorMatrix<double>& grad = result.student_weight_grad;
  std::vector<double> sums;
  Sum<double> magnitude, allowed;
  for (Index h = 0; h < grad.cols(); ++h) {
    Sum<double> sum;
    for (Index v = 0; v < grad.rows(); ++v) sum.add(grad(v, h));
    sums.push_back(sum.value());
  }
  for (Index v = 0; v < grad.rows(); ++v) magnitude.add(norm(row_of(grad, v)));
  for (const double bound : evaluation.bound.student_weight_grad) allowed.add(bound);
  comparison.equal_rows("the sum of the rows of student_weight_grad", sums, std::vector<double>(sums.size()),
                        allowed.value() + 2 * unit * magnitude.value(), evaluation.may_overflow);
  return comparison.outcome();
}

}  // namespace fljsd::checks
