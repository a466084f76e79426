// SPDX-License-Identifier: Apache-2.0
// What several families are made of.
#include <cmath>
#include <numeric>
#include <utility>

#include "verify/cases/family_makers.h"
#include "verify/cases/portable_math.h"

namespace fljsd {

Random stream(const CaseSpec& spec, Purpose purpose) {
  return Random(spec.seed,
                static_cast<std::uint64_t>(spec.family) << 8 | static_cast<std::uint64_t>(purpose));
}

Index teacher_hidden(const CaseSpec& spec) {
  return spec.teacher_hidden == 0 ? spec.student_hidden : spec.teacher_hidden;
}

std::vector<Index> token_rows(const CaseSpec& spec) {
  if (spec.token_rows) return *spec.token_rows;
  std::vector<Index> all(static_cast<std::size_t>(spec.tokens));
  std::iota(all.begin(), all.end(), Index{0});
  return all;
}

double log_uniform_strength(const CaseSpec& spec, double low, double high) {
  const double u = stream(spec, Purpose::strength).uniform(0);
  const double log_low = portable_log(low);
  return portable_exp(log_low + u * (portable_log(high) - log_low));
}

Case assemble(const CaseSpec& spec, const Model& student, const Model& teacher) {
  const std::vector<Index> rows = token_rows(spec);
  Case c;
  c.student_input = generate_rows(spec.dtype, rows, spec.student_hidden, student.input);
  c.teacher_input = generate_rows(spec.dtype, rows, teacher_hidden(spec), teacher.input);
  c.student_weight = generate_matrix(spec.dtype, spec.vocab, spec.student_hidden, student.weight);
  c.teacher_weight = generate_matrix(spec.dtype, spec.vocab, teacher_hidden(spec), teacher.weight);
  if (student.bias) c.student_bias = generate_vector(spec.dtype, spec.vocab, *student.bias);
  if (teacher.bias) c.teacher_bias = generate_vector(spec.dtype, spec.vocab, *teacher.bias);
  c.options = spec.options;
  return c;
}

RowFunction normal_rows(const Random& random, Index cols, double scale) {
  return [=](Index row, double* out) {
    for (Index j = 0; j < cols; ++j) out[j] = scale * random.deviate(row * cols + j);
  };
}

std::optional<ElementFunction> normal_bias(const CaseSpec& spec, Purpose purpose, double scale) {
  if (!spec.with_bias) return std::nullopt;
  return [random = stream(spec, purpose), scale](Index v) { return scale * random.deviate(v); };
}

Models independent_models(const CaseSpec& spec, double spread) {
  const auto model = [&](Index hidden, Purpose input, Purpose weight, Purpose bias) {
    return Model{normal_rows(stream(spec, input), hidden, 1),
                 normal_rows(stream(spec, weight), hidden, spread / std::sqrt(static_cast<double>(hidden))),
                 normal_bias(spec, bias)};
  };
  return {
      model(spec.student_hidden, Purpose::student_input, Purpose::student_weight, Purpose::student_bias),
      model(teacher_hidden(spec), Purpose::teacher_input, Purpose::teacher_weight, Purpose::teacher_bias)};
}

}  // namespace fljsd
