// SPDX-License-Identifier: Apache-2.0
// What the families are made of, and the makers that families.cpp lists. Not for use outside verify/cases.
#pragma once

#include <optional>

#include "verify/cases/families.h"
#include "verify/cases/generate.h"
#include "verify/cases/random.h"

namespace fljsd {

// What a stream of random numbers is for. The values are part of every case: append only.
enum class Purpose {
  student_input,
  student_weight,
  teacher_input,
  teacher_weight,
  student_bias,
  teacher_bias,
  labels,
  strength,
  token_choice,    // per token, both models
  student_choice,  // per token, student
  teacher_choice,
  vocab_choice,  // per vocabulary entry
  case_choice,   // once
  shared_input,  // what both models have in common
  shared_weight,
};

// The stream of this case for that purpose. Two families with the same seed share nothing.
Random stream(const CaseSpec& spec, Purpose purpose);

// teacher_hidden with its default filled in.
Index teacher_hidden(const CaseSpec& spec);

// The numbers of the tokens that the spec asks for.
std::vector<Index> token_rows(const CaseSpec& spec);

// exp of a uniform number between ln low and ln high, from the seed.
double log_uniform_strength(const CaseSpec& spec, double low, double high);

// One model of a case: element functions of its tensors. Without a bias the case has none.
struct Model {
  RowFunction input;   // row t, hidden columns
  RowFunction weight;  // row v, hidden columns
  std::optional<ElementFunction> bias;
};

// The case that the two models make, with the spec's options and without labels.
Case assemble(const CaseSpec& spec, const Model& student, const Model& teacher);

// Rows of scale · deviate.
RowFunction normal_rows(const Random& random, Index cols, double scale);

// A bias of scale · deviate if the spec asks for biases, else none.
std::optional<ElementFunction> normal_bias(const CaseSpec& spec, Purpose purpose, double scale = 1);

// Student and teacher, independent: inputs N(0, 1), weights such that the logits are about N(0, spread²);
// biases, where asked for, N(0, 1).
struct Models {
  Model student, teacher;
};
Models independent_models(const CaseSpec& spec, double spread);

// The makers, one a family. families_plain.cpp: content that any right implementation handles alike.
Case make_published(const CaseSpec& spec, double strength);
Case make_kaiming(const CaseSpec& spec, double strength);
Case make_integer_grid(const CaseSpec& spec, double strength);
Case make_padded_vocab(const CaseSpec& spec, double strength);
Case make_sizes(const CaseSpec& spec, double strength);
Case make_ignored_labels(const CaseSpec& spec, double strength);

// families_related.cpp: teacher logits that are a stated function of the student's.
Case make_lm_like(const CaseSpec& spec, double strength);
Case make_near_identical(const CaseSpec& spec, double strength);
Case make_equal_rows(const CaseSpec& spec, double strength);
Case make_anti_correlated(const CaseSpec& spec, double strength);

// families_extreme.cpp: logits, products or numbers of extreme size.
Case make_peaked(const CaseSpec& spec, double strength);
Case make_disjoint(const CaseSpec& spec, double strength);
Case make_offset(const CaseSpec& spec, double strength);
Case make_subnormal(const CaseSpec& spec, double strength);
Case make_wide_exponent(const CaseSpec& spec, double strength);
Case make_overflow(const CaseSpec& spec, double strength);

// The largest a for which every partial sum of hidden products of integers in −a .. a and a bias in −a .. a
// stays below 2^24 in absolute value, for both hidden sizes, and a is a whole number in every format: at most
// 127. 0 if the hidden size is too large even for a = 1.
Index integer_grid_limit(const CaseSpec& spec);

// The largest condition number of wide-exponent for which no element overflows the spec's dtype.
double wide_exponent_limit(const CaseSpec& spec);

}  // namespace fljsd
