// SPDX-License-Identifier: Apache-2.0
// Exact properties: the transformed case takes every implementation through the same roundings, so that equal
// bits must come out. Over- and underflow are the exceptions, and are left out.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "verify/cases/layout.h"
#include "verify/cases/random.h"
#include "verify/properties/checks.h"
#include "verify/properties/compare.h"

namespace fljsd::checks {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// Multiplies tensors by powers of two; remembers whether all of them could be without a change of dtype.
class Scaler {
 public:
  void operator()(Tensor& tensor, int exponent) {
    auto scaled = multiplied(tensor, std::ldexp(1.0, exponent));
    exact_ = exact_ && scaled && scaled->dtype == tensor.dtype;
    if (scaled) tensor = std::move(*scaled);
  }
  void operator()(std::optional<Tensor>& tensor, int exponent) {
    if (tensor) (*this)(*tensor, exponent);
  }
  bool exact() const { return exact_; }

 private:
  bool exact_ = true;
};

// ±1, ±2 or ±3.
int draw_exponent(std::uint64_t seed, Index number) {
  const auto k = static_cast<int>(Random(seed, 0x6578706f6e656e74).below(number, 6));
  return k < 3 ? k - 3 : k - 2;
}

PropertyOutcome inexact_scaling() {
  return not_applicable("scaling by a power of two is not exact in the tensors' formats.");
}

// Makes some tokens ignored where none is: at random, at least one and not all if there are two.
Case with_ignored_tokens(const Case& c, std::uint64_t seed) {
  const Problem problem = c.problem();
  const Index tokens = problem.tokens(), counted = count_tokens(problem, c.options);
  Case ignoring = c;
  if (counted < tokens || tokens == 0) return ignoring;
  const std::int64_t ignore = c.options.ignore_index, other = ignore == 0 ? 1 : 0;
  const Random random(seed, 0x69676e6f7265);
  ignoring.labels.emplace(static_cast<std::size_t>(tokens), other);
  for (Index t = 0; t < tokens; ++t)
    if (random.below(t, 3) == 0) (*ignoring.labels)[static_cast<std::size_t>(t)] = ignore;
  ignoring.labels->front() = ignore;
  if (tokens > 1) ignoring.labels->back() = other;
  return ignoring;
}

// `rows` of the tensor overwritten by `value`.
Tensor with_rows(const Tensor& tensor, const Indices& rows, double value) {
  const auto width = static_cast<std::size_t>(tensor.shape[0] == 0 ? 0 : tensor.elements() / tensor.shape[0]);
  std::vector<double> values = elements(tensor);
  for (const Index r : rows) std::fill_n(values.begin() + r * static_cast<Index>(width), width, value);
  return make_tensor(tensor.dtype, tensor.shape, values);
}

}  // namespace

// (2^k·a)·(2^-k·w) = a·w, and each product and each partial sum of a dot product is the same number as
// before, whatever the order of summation: logits keep their bits. dX = G·W is scaled by 2^-k and dW = Gᵀ·A
// by 2^k, exactly.
PropertyOutcome scaled_input_against_weight(const Case& c, const Implementation& implementation,
                                            std::uint64_t seed) {
  const int student = draw_exponent(seed, 0), teacher = draw_exponent(seed, 1);
  Case scaled = c;
  Scaler scale;
  scale(scaled.student_input, student);
  scale(scaled.student_weight, -student);
  scale(scaled.teacher_input, teacher);
  scale(scaled.teacher_weight, -teacher);
  if (!scale.exact()) return inexact_scaling();
  Correspondence f;
  f.input_grad = std::ldexp(1.0, -student);
  f.weight_grad = std::ldexp(1.0, student);
  f.scaled = true;
  return expect_correspondence(c, scaled, f, implementation, Exactness::bitwise);
}

// (2^k·a·w + 2^k·b) / (2^k·T) = (a·w + b)/T with every intermediate scaled by 2^k: logits keep their bits.
// With G = dD/dlogits unchanged, dX = G·W/(2^k·T) and the bias gradient G/(2^k·T) are scaled by 2^-k, and dW
// = Gᵀ·(2^k·A)/(2^k·T) is the same.
PropertyOutcome scaled_with_temperature(const Case& c, const Implementation& implementation,
                                        std::uint64_t seed) {
  const int k = draw_exponent(seed, 0);
  Case scaled = c;
  Scaler scale;
  scale(scaled.student_input, k);
  scale(scaled.teacher_input, k);
  scale(scaled.student_bias, k);
  scale(scaled.teacher_bias, k);
  if (!scale.exact()) return inexact_scaling();
  scaled.options.temperature = std::ldexp(c.options.temperature, k);
  if (std::ldexp(scaled.options.temperature, -k) != c.options.temperature) return inexact_scaling();
  Correspondence f;
  f.input_grad = f.bias_grad = std::ldexp(1.0, -k);
  f.scaled = true;
  return expect_correspondence(c, scaled, f, implementation, Exactness::bitwise);
}

// (−a)·(−w) = a·w, product by product. Column h of dX = G·W and of dW = Gᵀ·A changes its sign where column h
// of W and A does, and rounding to nearest is symmetric.
PropertyOutcome flipped_hidden_signs(const Case& c, const Implementation& implementation,
                                     std::uint64_t seed) {
  const auto signs = [&](Index hidden, std::uint64_t stream) {
    const Random random(seed, stream);
    std::vector<double> sign(static_cast<std::size_t>(hidden));
    for (Index h = 0; h < hidden; ++h)
      sign[static_cast<std::size_t>(h)] = h == 0 || random.below(h, 2) == 0 ? -1 : 1;
    return sign;
  };
  const auto flip = [](const Tensor& matrix, const std::vector<double>& sign) {
    std::vector<double> values = elements(matrix);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] *= sign[i % sign.size()];
    return make_tensor(matrix.dtype, matrix.shape, values);
  };
  const std::vector<double> student = signs(c.student_input.shape[1], 1);
  const std::vector<double> teacher = signs(c.teacher_input.shape[1], 2);
  Case flipped = c;
  flipped.student_input = flip(c.student_input, student);
  flipped.student_weight = flip(c.student_weight, student);
  flipped.teacher_input = flip(c.teacher_input, teacher);
  flipped.teacher_weight = flip(c.teacher_weight, teacher);
  Correspondence f;
  f.hidden_sign = student;
  return expect_correspondence(c, flipped, f, implementation, Exactness::bitwise);
}

// An ignored token takes part in nothing, so that its activations may be anything: with NaN there, all
// numbers are what they were, and the token's own loss and row of dX are 0.
PropertyOutcome poisoned_ignored_tokens(const Case& c, const Implementation& implementation,
                                        std::uint64_t seed) {
  const Case clean = with_ignored_tokens(c, seed);
  const Problem problem = clean.problem();
  Indices ignored;
  Correspondence f;
  f.tokens = identity(problem.tokens());
  for (Index t = 0; t < problem.tokens(); ++t) {
    if (is_counted(problem, clean.options, t)) continue;
    ignored.push_back(t);
    (*f.tokens)[static_cast<std::size_t>(t)] = -1;
  }
  if (ignored.empty()) return not_applicable("there is no token to ignore.");
  Case poisoned = clean;
  poisoned.student_input = with_rows(clean.student_input, ignored, nan);
  poisoned.teacher_input = with_rows(clean.teacher_input, ignored, nan);
  return expect_correspondence(clean, poisoned, f, implementation, Exactness::bitwise);
}

// The same batch without its ignored tokens: the sums run over the same tokens, and batchmean divides by the
// number of counted ones either way.
PropertyOutcome deleted_ignored_tokens(const Case& c, const Implementation& implementation,
                                       std::uint64_t seed) {
  const Case whole = with_ignored_tokens(c, seed);
  const Problem problem = whole.problem();
  Indices counted;
  Correspondence f;
  f.tokens.emplace();
  for (Index t = 0; t < problem.tokens(); ++t) {
    const bool counts = is_counted(problem, whole.options, t);
    f.tokens->push_back(counts ? static_cast<Index>(counted.size()) : -1);
    if (counts) counted.push_back(t);
  }
  return expect_correspondence(
      with_tokens(whole, counted), whole, f, implementation,
      implementation.removes_ignored_tokens ? Exactness::bitwise : Exactness::bounded);
}

// A label is only compared with ignore_index. So ignore_index may be any number that the ignored tokens have,
// and the other labels any numbers beside it: ones that agree with it in their lower or upper half, negative
// ones, the largest and the smallest.
PropertyOutcome relabelled_tokens(const Case& c, const Implementation& implementation, std::uint64_t seed) {
  const Case plain = with_ignored_tokens(c, seed);
  if (!plain.labels || plain.labels->empty()) return not_applicable("there is no token to label.");
  constexpr std::int64_t two_32 = std::int64_t{1} << 32;
  constexpr auto limits = std::numeric_limits<std::int64_t>();
  const Random random(seed, 0x6c6162656c);
  const std::array<std::int64_t, 5> marks{plain.options.ignore_index, -100, -1, 0, 7 * two_32 + 5};
  const std::int64_t mark = marks[static_cast<std::size_t>(random.below(0, std::ssize(marks)))];
  Case relabelled = plain;
  relabelled.options.ignore_index = mark;
  for (std::size_t t = 0; t < plain.labels->size(); ++t) {
    std::int64_t& label = (*relabelled.labels)[t];
    if (label == plain.options.ignore_index) {
      label = mark;
      continue;
    }
    const std::array<std::int64_t, 8> others{mark + two_32, mark - two_32, -100,        -1, 0,
                                             32000,         limits.max(),  limits.min()};
    label = others[static_cast<std::size_t>(random.below(static_cast<Index>(t) + 1, std::ssize(others)))];
    if (label == mark) label = mark + two_32;
  }
  return expect_correspondence(plain, relabelled, {}, implementation, Exactness::bitwise);
}

// Entries at or past valid_vocab do not exist: NaN in their weights and biases changes nothing, and their
// gradients are 0.
PropertyOutcome poisoned_padding_entries(const Case& c, const Implementation& implementation,
                                         std::uint64_t seed) {
  const Index vocab = c.student_weight.shape[0];
  Case clean = c;
  if (valid_vocab(c.problem(), c.options) == vocab) {
    if (vocab == 1) return not_applicable("a vocabulary of one entry cannot be cut.");
    clean.options.valid_vocab = 1 + Random(seed, 0x76616c6964).below(0, vocab - 1);
  }
  Correspondence f;
  f.vocab = identity(vocab);
  Indices padding;
  for (Index v = valid_vocab(clean.problem(), clean.options); v < vocab; ++v) {
    padding.push_back(v);
    (*f.vocab)[static_cast<std::size_t>(v)] = -1;
  }
  Case poisoned = clean;
  poisoned.student_weight = with_rows(clean.student_weight, padding, nan);
  poisoned.teacher_weight = with_rows(clean.teacher_weight, padding, nan);
  if (c.student_bias) poisoned.student_bias = with_rows(*clean.student_bias, padding, nan);
  if (c.teacher_bias) poisoned.teacher_bias = with_rows(*clean.teacher_bias, padding, nan);
  return expect_correspondence(clean, poisoned, f, implementation, Exactness::bitwise);
}

// Where a tensor lies, and what stands between its rows, is not part of the problem.
PropertyOutcome padded_unaligned_layout(const Case& c, const Implementation& implementation,
                                        std::uint64_t seed) {
  if (!implementation.compute_views)
    return not_applicable(implementation.name + " cannot be given tensors by address.");
  if (auto outcome = lacking(implementation, {&c})) return *outcome;
  const Random random(seed, 0x6c61796f7574);
  const Layout layout{1 + random.below(0, 9), static_cast<std::size_t>(random.below(1, 64))};
  const LaidOutCase laid_out(c, layout);
  return expect_correspondence(
      Evaluation(c, implementation),
      Evaluation(c, implementation.compute_views(laid_out.problem(), c.options), implementation), {},
      implementation, Exactness::bitwise);
}

// The answer is a function of the case: neither time nor another case in between may enter it.
PropertyOutcome rerun(const Case& c, const Implementation& implementation, std::uint64_t) {
  const Case other = with_models_swapped(c);
  if (auto outcome = lacking(implementation, {&c, &other})) return *outcome;
  const Evaluation first(c, implementation);
  implementation.compute(other);
  return expect_correspondence(first, Evaluation(c, implementation), {}, implementation, Exactness::bitwise);
}

// Inputs are read only.
PropertyOutcome inputs_unchanged(const Case& c, const Implementation& implementation, std::uint64_t) {
  if (auto outcome = lacking(implementation, {&c})) return *outcome;
  struct Copy {
    const char* what;
    const Tensor* tensor;
    std::vector<std::byte> bytes;
  };
  std::vector<Copy> copies;
  const auto keep = [&](const char* what, const Tensor* tensor) {
    if (tensor == nullptr) return;
    copies.push_back({what, tensor, {tensor->data.get(), tensor->data.get() + tensor->bytes()}});
  };
  keep("student_input", &c.student_input);
  keep("student_weight", &c.student_weight);
  keep("teacher_input", &c.teacher_input);
  keep("teacher_weight", &c.teacher_weight);
  keep("student_bias", c.student_bias ? &*c.student_bias : nullptr);
  keep("teacher_bias", c.teacher_bias ? &*c.teacher_bias : nullptr);
  const auto labels = c.labels;

  implementation.compute(c);

  Comparison comparison;
  for (const Copy& copy : copies) {
    if (!std::equal(copy.bytes.begin(), copy.bytes.end(), copy.tensor->data.get()))
      comparison.fail(fmt::format("{} was overwritten.", copy.what));
  }
  if (c.labels != labels) comparison.fail("labels were overwritten.");
  return comparison.outcome();
}

// One entry has probability 1 under both models, whatever its logit: every loss and gradient is 0. No
// rounding can change that in a formula of differences, because softmax of one entry is e^0/e^0; other
// formulas are held to their bound.
PropertyOutcome single_entry_vocabulary(const Case& c, const Implementation& implementation,
                                        std::uint64_t seed) {
  const Index valid = valid_vocab(c.problem(), c.options);
  const Case single = with_vocab(c, {Random(seed, 0x73696e676c65).below(0, valid)});
  if (auto outcome = lacking(implementation, {&single})) return *outcome;
  for (const Tensor* tensor : {&single.student_input, &single.student_weight, &single.teacher_input,
                               &single.teacher_weight, single.student_bias ? &*single.student_bias : nullptr,
                               single.teacher_bias ? &*single.teacher_bias : nullptr})
    if (tensor != nullptr && !all_finite(*tensor)) return not_applicable("the case is not finite.");
  const Evaluation evaluation(single, implementation);
  if (evaluation.may_overflow) return not_applicable("a logit may overflow.");
  const Result& result = evaluation.result;
  const ErrorBound& bound = evaluation.bound;
  const auto within = [&](double own) { return implementation.exact_zeros ? 0.0 : own; };
  Comparison comparison;
  if (result.loss) comparison.equal("loss", *result.loss, 0, within(bound.loss));
  for (std::size_t t = 0; t < result.token_loss.size(); ++t)
    comparison.equal(fmt::format("token_loss[{}]", t), result.token_loss[t], 0, within(bound.token_loss[t]));
  const auto all_zero = [&](const char* what, const RowMajorMatrix<double>& m,
                            const std::vector<double>& bounds) {
    const std::vector<double> zeros(static_cast<std::size_t>(m.cols()));
    for (Index r = 0; r < m.rows(); ++r)
      comparison.equal_rows(fmt::format("{}[{}]", what, r), row_of(m, r), zeros,
                            within(bounds[static_cast<std::size_t>(r)]));
  };
  all_zero("student_input_grad", result.student_input_grad, bound.student_input_grad);
  all_zero("student_weight_grad", result.student_weight_grad, bound.student_weight_grad);
  for (std::size_t v = 0; v < result.student_bias_grad.size(); ++v)
    comparison.equal(fmt::format("student_bias_grad[{}]", v), result.student_bias_grad[v], 0,
                     within(bound.student_bias_grad[v]));
  return comparison.outcome();
}

// A token whose student activations hold NaN has no distribution: its loss and its row of dX are NaN, and so
// are the loss and what sums over tokens; the other tokens' losses and rows of dX are what they were.
PropertyOutcome undefined_token_is_contained(const Case& c, const Implementation& implementation,
                                             std::uint64_t seed) {
  if (auto outcome = lacking(implementation, {&c}, {Feature::token_loss})) return *outcome;
  const Problem problem = c.problem();
  Indices counted;
  for (Index t = 0; t < problem.tokens(); ++t)
    if (is_counted(problem, c.options, t)) counted.push_back(t);
  if (counted.empty()) return not_applicable("no token counts.");
  const Index token = counted[static_cast<std::size_t>(
      Random(seed, 0x756e646566).below(0, static_cast<Index>(counted.size())))];
  Case undefined = c;
  undefined.student_input = with_rows(c.student_input, {token}, nan);

  const Evaluation a(c, implementation), b(undefined, implementation);
  // What must come out: A's answer with NaN put in.
  Evaluation expected = a;
  if (expected.result.loss) expected.result.loss = nan;
  expected.result.token_loss[static_cast<std::size_t>(token)] = nan;
  if (expected.result.student_input_grad.size() > 0)
    expected.result.student_input_grad.row(token).setConstant(nan);
  const Index valid = valid_vocab(problem, c.options);
  if (expected.result.student_weight_grad.size() > 0)
    expected.result.student_weight_grad.topRows(valid).setConstant(nan);
  auto& bias = expected.result.student_bias_grad;
  if (!bias.empty()) std::fill_n(bias.begin(), valid, nan);
  return expect_correspondence(expected, b, {}, implementation, Exactness::bitwise);
}

}  // namespace fljsd::checks
