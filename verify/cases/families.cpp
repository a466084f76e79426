// SPDX-License-Identifier: Apache-2.0
#include "verify/cases/families.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "verify/cases/family_makers.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

constexpr std::optional<Strength> none = std::nullopt;

constexpr Strength noise{"standard deviation of student minus teacher logits, nats", 0, 100,
                         [](const CaseSpec& spec) { return log_uniform_strength(spec, 0.05, 1); }};
constexpr Strength gap{"standard deviation of teacher minus student logits, nats", 0, 10,
                       [](const CaseSpec& spec) { return log_uniform_strength(spec, 1e-6, 1e-1); }};
constexpr Strength lift{"nats by which a token's entry is lifted", 1, 1000,
                        [](const CaseSpec& spec) { return log_uniform_strength(spec, 10, 200); }};
constexpr Strength depth{
    "nats between a model's own entries and the other's; inf: probability 0", 1, infinity,
    [](const CaseSpec& spec) {
      return stream(spec, Purpose::strength).word(1) & 1 ? infinity : log_uniform_strength(spec, 30, 2000);
    }};
constexpr Strength offset{"largest offset, nats", 0, 30000,
                          [](const CaseSpec& spec) { return log_uniform_strength(spec, 10, 1e4); }};
constexpr Strength condition{"sum of |products| of a logit's dot product, whose value is of order 1", 2,
                             0x1p60, [](const CaseSpec& spec) {
                               return log_uniform_strength(spec, 1e2,
                                                           std::min(1e6, wide_exponent_limit(spec)));
                             }};
constexpr Strength magnitude{
    "largest integer", 1, 127, [](const CaseSpec& spec) {
      const Index limit = std::max<Index>(1, integer_grid_limit(spec));
      return static_cast<double>(std::min<Index>(
          limit, static_cast<Index>(log_uniform_strength(spec, 1, static_cast<double>(limit + 1)))));
    }};
constexpr Strength filling{
    "what the padding rows hold: 0 zeros, 1 values ten times as large as the others, 2 NaN", 0, 2,
    [](const CaseSpec& spec) { return static_cast<double>(stream(spec, Purpose::strength).below(0, 3)); }};
constexpr Strength ignored{"probability that a token is ignored", 0, 1, [](const CaseSpec& spec) {
                             const double u = stream(spec, Purpose::strength).uniform(0);
                             return u < 0.25 ? 1 : 0.5 + 0.5 * (u - 0.25) / 0.75;
                           }};
constexpr Strength spread{"standard deviation of the logits, nats", 0, 1000,
                          [](const CaseSpec& spec) { return log_uniform_strength(spec, 1, 10); }};

using enum Finiteness;

const Family table[] = {
    {1, "published",
     "Inputs and weights uniform on k/256, k = 0 … 255, as the published benchmark draws them in bf16: at "
     "its "
     "size logits near 1024 whose spread is about one bf16 spacing.",
     always, none, make_published},
    {2, "kaiming",
     "Inputs N(0, 1), weights uniform on ±1/sqrt(hidden), a freshly initialised head: flat rows, small loss.",
     always, none, make_kaiming},
    {3, "lm-like",
     "Zipf's law over the vocabulary plus context, and a student that is the teacher plus noise: what "
     "training "
     "sees.",
     always, noise, make_lm_like},
    {4, "near-identical",
     "Student and teacher logits that differ by a small stated gap: formulas that subtract probabilities "
     "lose "
     "everything.",
     always, gap, make_near_identical},
    {5, "peaked",
     "One entry dominates each row, the same for both models or not: underflow of all other probabilities.",
     always, lift, make_peaked},
    {6, "disjoint",
     "Each model gives its probability to entries to which the other gives none: the loss is the binary "
     "entropy "
     "of beta, and 0 · log 0 lurks.",
     inside, depth, make_disjoint},
    {7, "offset",
     "A common offset on all logits and another for each row, of which the loss is independent: exponentials "
     "without their maximum, and logits too large for the format they are kept in.",
     always, offset, make_offset},
    {8, "subnormal",
     "Subnormal inputs and weights that matter, because their partners are huge, and others that underflow: "
     "flushing to zero.",
     always, none, make_subnormal},
    {9, "wide-exponent",
     "Dot products of large terms that cancel, with exponents spread widely: accumulation in too few bits.",
     always, condition, make_wide_exponent},
    {10, "integer-grid",
     "Integers, times one power of two for a weight, whose partial sums stay below 2^24 in any order, so "
     "that "
     "fp32 logits are exact: separates indexing errors from rounding.",
     always, magnitude, make_integer_grid},
    {11, "padded-vocab",
     "The vocabulary's last rows are padding that valid_vocab excludes: it must reach neither the normaliser "
     "nor a gradient.",
     always, filling, make_padded_vocab},
    {12, "sizes",
     "Any sizes, with much of the answer carried by the last hidden column and the last vocabulary entry: "
     "dropped or doubled ragged tiles.",
     always, none, make_sizes},
    {13, "ignored-labels",
     "Most or all tokens ignored, with NaN and infinity in their inputs: they must change nothing, and 0/0 "
     "must "
     "be 0.",
     always, ignored, make_ignored_labels},
    {14, "equal-rows",
     "Student and teacher rows that are equal up to a constant: loss and gradients are exactly 0.", always,
     none, make_equal_rows},
    {15, "overflow",
     "NaN and infinity in the inputs of some tokens, logits beyond fp32 in others: they must show where they "
     "are and nowhere else.",
     no_promise, none, make_overflow},
    {16, "anti-correlated",
     "Teacher logits are the negated student logits: the largest disagreement at a given spread.", always,
     spread, make_anti_correlated},
};

[[noreturn]] void refuse(const std::string& sentence) {
  throw InvalidProblem(sentence);
}

std::string known_families() {
  std::string text;
  for (const Family& family : table)
    text += fmt::format("{}{} {}", family.number > 1 ? ", " : "", family.number, family.name);
  return text;
}

// Refuses sizes and options with the sentences of validate(), before anything is allocated.
void check(const CaseSpec& spec) {
  const Index wide = teacher_hidden(spec);
  const auto matrix = [&](const char* field, Index rows, Index cols) {
    // Element numbers are doubled on their way to random words, bytes are eight times elements.
    Index elements;
    if (__builtin_mul_overflow(rows, cols, &elements) || elements > Index{1} << 59) {
      refuse(
          fmt::format("{} has shape [{}, {}], but it must have at most 2^59 elements.", field, rows, cols));
    }
    return MatrixView{spec.dtype, &spec, rows, cols, cols};
  };
  Problem problem;
  problem.student_input = matrix("student_input", spec.tokens, spec.student_hidden);
  problem.student_weight = matrix("student_weight", spec.vocab, spec.student_hidden);
  problem.teacher_input = matrix("teacher_input", spec.tokens, wide);
  problem.teacher_weight = matrix("teacher_weight", spec.vocab, wide);
  validate(problem, spec.options);

  if (!spec.token_rows) return;
  for (Index t : *spec.token_rows) {
    if (t < 0 || t >= spec.tokens)
      refuse(fmt::format("token_rows holds {}, but it must be in [0, {}).", t, spec.tokens));
  }
}

}  // namespace

std::span<const Family> families() {
  return table;
}

const Family& find_family(int number) {
  for (const Family& family : table) {
    if (family.number == number) return family;
  }
  refuse(fmt::format("family is {}, but it must be one of {}.", number, known_families()));
}

const Family& find_family(std::string_view name_or_number) {
  for (const Family& family : table) {
    if (name_or_number == family.name || name_or_number == std::to_string(family.number)) return family;
  }
  refuse(fmt::format("family is '{}', but it must be one of {}.", name_or_number, known_families()));
}

double resolved_strength(const CaseSpec& spec) {
  const Family& family = find_family(spec.family);
  if (!family.strength) {
    if (spec.strength)
      refuse(fmt::format("strength is {}, but the family {} has none.", *spec.strength, family.name));
    return 0;
  }
  const double x = spec.strength ? *spec.strength : family.strength->from_seed(spec);
  const auto demand = [&](bool fulfilled, const std::string& what) {
    if (!fulfilled) {
      refuse(fmt::format("strength is {}, but for the family {} ({}) it must be {}.", x, family.name,
                         family.strength->meaning, what));
    }
  };
  demand(x >= family.strength->min && x <= family.strength->max,
         fmt::format("in [{}, {}]", family.strength->min, family.strength->max));
  // Whole numbers, and limits that depend on sizes or dtype.
  if (family.make == make_padded_vocab) demand(x == static_cast<int>(x), "0, 1 or 2");
  if (family.make == make_wide_exponent)
    demand(x <= wide_exponent_limit(spec),
           fmt::format("at most {} in {}", wide_exponent_limit(spec), name(spec.dtype)));
  if (family.make == make_integer_grid) {
    demand(x == static_cast<int>(x), "a whole number");
    demand(x <= static_cast<double>(integer_grid_limit(spec)),
           fmt::format("at most {} for hidden sizes {} and {}", integer_grid_limit(spec), spec.student_hidden,
                       teacher_hidden(spec)));
  }
  return x;
}

Case make_case(const CaseSpec& spec) {
  const Family& family = find_family(spec.family);
  check(spec);
  const double strength = resolved_strength(spec);
  Case c = family.make(spec, strength);

  c.provenance["family"] = family.name;
  c.provenance["seed"] = std::to_string(spec.seed);
  if (family.strength) c.provenance["strength"] = fmt::format("{}", strength);
  if (spec.with_bias) c.provenance["with_bias"] = "true";
  if (spec.token_rows) {
    c.provenance["tokens_of_whole_case"] = std::to_string(spec.tokens);
    std::string& text = c.provenance["token_rows"];
    for (Index t : *spec.token_rows) text += (text.empty() ? "" : ",") + std::to_string(t);
  }
  return c;
}

std::span<const Index> awkward_sizes() {
  static constexpr Index sizes[] = {1,  2,   3,   5,   7,   8,   9,   11,  13,  15,  16,
                                    17, 23,  31,  32,  33,  37,  61,  63,  64,  65,  67,
                                    97, 113, 127, 128, 129, 131, 199, 251, 255, 256, 257};
  return sizes;
}

}  // namespace fljsd
