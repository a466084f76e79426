// SPDX-License-Identifier: Apache-2.0
// Small problems as plain numbers, for tests that edit them by hand.
#pragma once

#include <optional>
#include <random>
#include <vector>

#include "verify/cases/case.h"

namespace fljsd {

// A small problem as plain numbers, which a test edits before it makes tensors of them.
struct Numbers {
  Index tokens, student_hidden, teacher_hidden, vocab;
  std::vector<double> student_input, student_weight, teacher_input, teacher_weight, student_bias,
      teacher_bias;
  std::optional<std::vector<std::int64_t>> labels;
  Options options;
  DType student_input_type = DType::f64, student_weight_type = DType::f64, teacher_input_type = DType::f64,
        teacher_weight_type = DType::f64;

  Case make() const {
    Case c;
    c.student_input = make_tensor(student_input_type, {tokens, student_hidden}, student_input);
    c.student_weight = make_tensor(student_weight_type, {vocab, student_hidden}, student_weight);
    c.teacher_input = make_tensor(teacher_input_type, {tokens, teacher_hidden}, teacher_input);
    c.teacher_weight = make_tensor(teacher_weight_type, {vocab, teacher_hidden}, teacher_weight);
    if (!student_bias.empty()) c.student_bias = make_tensor(DType::f64, {vocab}, student_bias);
    if (!teacher_bias.empty()) c.teacher_bias = make_tensor(DType::f64, {vocab}, teacher_bias);
    c.labels = labels;
    c.options = options;
    return c;
  }
};

// Sixteenths in [−2, 2): exact in every format, so that dtypes can be mixed freely.
inline std::vector<double> sixteenths(std::mt19937_64& random, Index count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = static_cast<double>(random() % 64) / 16 - 2;
  return values;
}

inline Numbers numbers(std::uint64_t seed, Index tokens = 4, Index vocab = 6, Index student_hidden = 3,
                       Index teacher_hidden = 2) {
  std::mt19937_64 random(seed);
  Numbers n{tokens, student_hidden, teacher_hidden, vocab, {}, {}, {}, {}, {}, {}, {}, {}};
  n.student_input = sixteenths(random, tokens * student_hidden);
  n.student_weight = sixteenths(random, vocab * student_hidden);
  n.teacher_input = sixteenths(random, tokens * teacher_hidden);
  n.teacher_weight = sixteenths(random, vocab * teacher_hidden);
  n.student_bias = sixteenths(random, vocab);
  n.teacher_bias = sixteenths(random, vocab);
  return n;
}

// A random problem that uses every option.
inline Numbers random_numbers(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](Index n) { return static_cast<Index>(random() % static_cast<std::uint64_t>(n)); };
  Numbers n = numbers(random(), 1 + below(3), 1 + below(5), 1 + below(3), 1 + below(3));
  const double temperatures[] = {1, 0.7, 2.5};
  n.options.temperature = temperatures[below(3)];
  n.options.reduction =
      std::vector{Reduction::batchmean, Reduction::sum, Reduction::none}[static_cast<std::size_t>(below(3))];
  if (below(2)) n.student_bias.clear();
  if (below(2)) n.teacher_bias.clear();
  if (below(2)) n.options.valid_vocab = 1 + below(n.vocab);
  if (below(2)) {
    n.labels.emplace();
    for (Index t = 0; t < n.tokens; ++t) n.labels->push_back(below(3) ? 5 : -100);
  }
  const DType dtypes[] = {DType::bf16, DType::f16, DType::f32, DType::f64};
  n.student_input_type = dtypes[below(4)];
  n.student_weight_type = dtypes[below(4)];
  n.teacher_input_type = dtypes[below(4)];
  n.teacher_weight_type = dtypes[below(4)];
  return n;
}

}  // namespace fljsd
