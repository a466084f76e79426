// SPDX-License-Identifier: Apache-2.0
// Families whose teacher logits are a stated function of the student's logits, whatever the two hidden sizes
// are: the models share their first columns, and what columns the larger one has beyond those adds nothing.
#include <algorithm>
#include <cmath>

#include "verify/cases/family_makers.h"
#include "verify/cases/portable_math.h"

namespace fljsd {
namespace {

// Columns first .. last − 1 add nothing to any logit: in the even ones the inputs are 0, in the odd ones the
// weights are; the other factor is random.
void dead_inputs(const Random& random, Index row, Index first, Index last, double* out) {
  for (Index j = first; j < last; ++j) out[j] = j % 2 == 0 ? 0 : random.deviate(row * last + j);
}
void dead_weights(const Random& random, Index row, Index first, Index last, double scale, double* out) {
  for (Index j = first; j < last; ++j) out[j] = j % 2 == 1 ? 0 : scale * random.deviate(row * last + j);
}

// A student and a teacher with the same logits, about N(0, spread²), made by `shared` common columns; with
// biases, the same for both, where the spec asks for them.
Models twins(const CaseSpec& spec, Index shared, double spread) {
  const double scale = spread / std::sqrt(static_cast<double>(shared));
  const auto twin = [&](Index hidden, Purpose dead_input, Purpose dead_weight) {
    Model m;
    m.input = [=, common = normal_rows(stream(spec, Purpose::shared_input), shared, 1),
               dead = stream(spec, dead_input)](Index t, double* out) {
      common(t, out);
      dead_inputs(dead, t, shared, hidden, out);
    };
    m.weight = [=, common = normal_rows(stream(spec, Purpose::shared_weight), shared, scale),
                dead = stream(spec, dead_weight)](Index v, double* out) {
      common(v, out);
      dead_weights(dead, v, shared, hidden, scale, out);
    };
    m.bias = normal_bias(spec, Purpose::student_bias);
    return m;
  };
  return {twin(spec.student_hidden, Purpose::student_input, Purpose::student_weight),
          twin(teacher_hidden(spec), Purpose::teacher_input, Purpose::teacher_weight)};
}

// Twins whose teacher has its last column for itself, to differ by; a teacher of one column cannot have that.
Models twins_and_teacher_column(const CaseSpec& spec, double spread) {
  const Index teacher_shared = std::max<Index>(1, teacher_hidden(spec) - 1);
  return twins(spec, std::min(spec.student_hidden, teacher_shared), spread);
}

}  // namespace

// Logits of a language model. Column 0 holds the unigram distribution, a Zipf–Mandelbrot law over a random
// order of the vocabulary: log-probability −ln(rank + 2.7) up to a constant. The other shared columns hold
// the context: logits N(0, 2²), and a pull of up to 16 nats towards one entry, drawn by a Zipf law as well.
// The student is the teacher with noise on inputs and weights that moves a logit by about `noise` nats
// (standard deviation). Columns that only one model has move its logits by half of that.
Case make_lm_like(const CaseSpec& spec, double noise) {
  const Index wide = teacher_hidden(spec);
  const Index shared = std::min(spec.student_hidden, wide);
  const Index context = shared - 1;
  constexpr double context_spread = 2, most_pull = 16;
  const double weight_scale = context_spread / std::sqrt(static_cast<double>(std::max<Index>(1, context)));

  const Permutation rank(stream(spec, Purpose::vocab_choice), spec.vocab);
  const auto unigram = [rank](Index v) { return -portable_log(static_cast<double>(rank(v)) + 2.7); };

  // Columns 1 … of the teacher's weight row v.
  const RowFunction context_weight = normal_rows(stream(spec, Purpose::shared_weight), context, weight_scale);

  // The target's rank is log-uniform, which is Zipf's law. Adding a multiple of its weight row w to the input
  // lifts its logit by that multiple of |w|², which is context_spread² on average; a shorter w gets no larger
  // multiple, lest all other logits explode in its stead.
  const auto context_input = [=, random = stream(spec, Purpose::shared_input),
                              choice = stream(spec, Purpose::token_choice),
                              log_size = portable_log(static_cast<double>(spec.vocab) + 1),
                              size = spec.vocab](Index t, double* out) {
    const auto target_rank = static_cast<Index>(portable_exp(choice.uniform(2 * t) * log_size)) - 1;
    context_weight(rank.inverse(std::clamp<Index>(target_rank, 0, size - 1)), out);
    double square = 0;
    for (Index j = 0; j < context; ++j) square += out[j] * out[j];
    const double pull_scale =
        most_pull * choice.uniform(2 * t + 1) / std::max(square, context_spread * context_spread);
    for (Index j = 0; j < context; ++j)
      out[j] = random.deviate(t * std::max<Index>(1, context) + j) + pull_scale * out[j];
  };

  // Columns shared … of a model that has more than the other.
  const auto own_columns = [=](const Random& random, Index hidden, bool weight) -> RowFunction {
    const double scale =
        weight ? noise / 2 / std::sqrt(static_cast<double>(std::max<Index>(1, hidden - shared))) : 1;
    return [=](Index row, double* out) {
      for (Index j = shared; j < hidden; ++j) out[j] = scale * random.deviate(row * hidden + j);
    };
  };

  // Half of the noise's variance comes from the inputs, half from the weights.
  const double input_noise = noise / context_spread / std::sqrt(2.0);
  const double weight_noise = noise / std::sqrt(2.0 * static_cast<double>(std::max<Index>(1, context)));

  const Random student_input_random = stream(spec, Purpose::student_input);
  const Random student_weight_random = stream(spec, Purpose::student_weight);
  Model student, teacher;
  student.input = [=, hidden = spec.student_hidden, random = student_input_random,
                   own = own_columns(student_input_random, spec.student_hidden, false)](Index t,
                                                                                        double* out) {
    out[0] = 1;
    context_input(t, out + 1);
    for (Index j = 1; j < shared; ++j) out[j] += input_noise * random.deviate(t * hidden + j);
    own(t, out);
  };
  student.weight = [=, hidden = spec.student_hidden, random = student_weight_random,
                    own = own_columns(student_weight_random, spec.student_hidden, true)](Index v,
                                                                                         double* out) {
    // Without context columns the unigram column is the only place for the noise.
    out[0] = unigram(v) + (context == 0 ? noise * random.deviate(v * hidden) : 0);
    context_weight(v, out + 1);
    for (Index j = 1; j < shared; ++j) out[j] += weight_noise * random.deviate(v * hidden + j);
    own(v, out);
  };
  student.bias = normal_bias(spec, Purpose::student_bias, noise);
  teacher.input = [=, own = own_columns(stream(spec, Purpose::teacher_input), wide, false)](Index t,
                                                                                            double* out) {
    out[0] = 1;
    context_input(t, out + 1);
    own(t, out);
  };
  teacher.weight = [=, own = own_columns(stream(spec, Purpose::teacher_weight), wide, true)](Index v,
                                                                                             double* out) {
    out[0] = unigram(v);
    context_weight(v, out + 1);
    own(v, out);
  };
  teacher.bias = normal_bias(spec, Purpose::teacher_bias, noise);
  return assemble(spec, student, teacher);
}

// y_v − x_v = ± gap · n_v with n_v a deviate of variance 1 and the sign the token's, up to one rounding of
// each factor. It enters through the teacher's last column, as input gap · 2^10 and weight n_v · 2^-10, which
// keeps both in the range of normal fp16 numbers; through the teacher's bias if the teacher has but one
// column.
Case make_near_identical(const CaseSpec& spec, double gap) {
  constexpr double split = 1024;
  const Index wide = teacher_hidden(spec);
  Models models = twins_and_teacher_column(spec, 3);
  const Random deviation = stream(spec, Purpose::vocab_choice);
  if (wide == 1) {
    models.student.bias =
        spec.with_bias ? std::optional<ElementFunction>([](Index) { return 0.0; }) : std::nullopt;
    models.teacher.bias = [=](Index v) { return gap * deviation.deviate(v); };
  } else {
    models.teacher.input = [=, row = models.teacher.input, choice = stream(spec, Purpose::token_choice)](
                               Index t, double* out) {
      row(t, out);
      out[wide - 1] = (choice.word(t) & 1 ? -split : split) * gap;
    };
    models.teacher.weight = [=, row = models.teacher.weight](Index v, double* out) {
      row(v, out);
      out[wide - 1] = deviation.deviate(v) / split;
    };
  }
  return assemble(spec, models.student, models.teacher);
}

// Three kinds of tokens, all with p = q exactly: equal logits; teacher logits that are the student's plus a
// constant (a teacher of one column has none to add it with); logits that do not depend on the token, being
// the biases or all the same.
Case make_equal_rows(const CaseSpec& spec, double) {
  const Index wide = teacher_hidden(spec);
  Models models = twins_and_teacher_column(spec, 3);
  const Random choice = stream(spec, Purpose::token_choice);
  const auto flatten = [&](Model& model, Index hidden) {
    model.input = [=, row = model.input](Index t, double* out) {
      row(t, out);
      if (choice.below(t, 3) == 2) std::fill_n(out, hidden, 0.0);
    };
  };
  flatten(models.student, spec.student_hidden);
  flatten(models.teacher, wide);
  if (wide > 1) {
    models.teacher.input = [=, row = models.teacher.input, shift = stream(spec, Purpose::teacher_choice)](
                               Index t, double* out) {
      row(t, out);
      out[wide - 1] = choice.below(t, 3) == 0 ? 0 : 8 * shift.deviate(t);
    };
    models.teacher.weight = [=, row = models.teacher.weight](Index v, double* out) {
      row(v, out);
      out[wide - 1] = 1;
    };
  }
  return assemble(spec, models.student, models.teacher);
}

// y = −x exactly: the same weights, negated inputs and biases.
Case make_anti_correlated(const CaseSpec& spec, double spread) {
  Models models = twins(spec, std::min(spec.student_hidden, teacher_hidden(spec)), spread);
  models.teacher.input = [row = models.teacher.input, hidden = teacher_hidden(spec)](Index t, double* out) {
    row(t, out);
    for (Index j = 0; j < hidden; ++j) out[j] = -out[j];
  };
  if (models.teacher.bias) {
    models.teacher.bias = [bias = *models.teacher.bias](Index v) { return -bias(v); };
  }
  return assemble(spec, models.student, models.teacher);
}

}  // namespace fljsd
