// SPDX-License-Identifier: Apache-2.0
// Families whose difficulty lies elsewhere than in the size or the relation of their logits.
#include <algorithm>
#include <cmath>
#include <limits>

#include "verify/cases/family_makers.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

Case make_published(const CaseSpec& spec, double) {
  const auto bytes = [&](Purpose purpose, Index hidden) -> RowFunction {
    return [random = stream(spec, purpose), hidden](Index row, double* out) {
      for (Index j = 0; j < hidden; ++j) out[j] = random.byte(row * hidden + j) * 0x1p-8;
    };
  };
  const auto bias = [&](Purpose purpose) -> std::optional<ElementFunction> {
    if (!spec.with_bias) return std::nullopt;
    return [random = stream(spec, purpose)](Index v) { return random.byte(v) * 0x1p-8; };
  };
  const Index wide = teacher_hidden(spec);
  return assemble(spec,
                  {bytes(Purpose::student_input, spec.student_hidden),
                   bytes(Purpose::student_weight, spec.student_hidden), bias(Purpose::student_bias)},
                  {bytes(Purpose::teacher_input, wide), bytes(Purpose::teacher_weight, wide),
                   bias(Purpose::teacher_bias)});
}

Case make_kaiming(const CaseSpec& spec, double) {
  const auto model = [&](Index hidden, Purpose input, Purpose weight, Purpose bias) {
    const double bound = 1 / std::sqrt(static_cast<double>(hidden));
    Model m;
    m.input = normal_rows(stream(spec, input), hidden, 1);
    m.weight = [random = stream(spec, weight), hidden, bound](Index row, double* out) {
      for (Index j = 0; j < hidden; ++j) out[j] = bound * random.symmetric(row * hidden + j);
    };
    if (spec.with_bias)
      m.bias = [random = stream(spec, bias), bound](Index v) { return bound * random.symmetric(v); };
    return m;
  };
  return assemble(
      spec,
      model(spec.student_hidden, Purpose::student_input, Purpose::student_weight, Purpose::student_bias),
      model(teacher_hidden(spec), Purpose::teacher_input, Purpose::teacher_weight, Purpose::teacher_bias));
}

Index integer_grid_limit(const CaseSpec& spec) {
  const Index hidden = std::max(spec.student_hidden, teacher_hidden(spec));
  constexpr Index limit = (Index{1} << 24) - 1;
  Index a = 127;
  while (a > 0 && hidden > (limit - a) / (a * a)) --a;
  return a;
}

// Inputs are integers; weights and biases are integers times one power of two 2^-k, chosen so that the logits
// have a standard deviation between 1.5 and 3 where the integers themselves would give more: a row on which
// one entry dominates would hide every other error.
Case make_integer_grid(const CaseSpec& spec, double strength) {
  const auto a = static_cast<Index>(strength);
  const auto model = [&](Index hidden, Purpose input, Purpose weight, Purpose bias) {
    // An integer uniform on −a .. a has variance a(a+1)/3.
    double unit = 1;
    double spread = std::sqrt(static_cast<double>(hidden)) * static_cast<double>(a * (a + 1)) / 3;
    for (; spread > 3; spread /= 2) unit /= 2;
    const auto integers = [=](const Random& random, double scale) -> RowFunction {
      return [=](Index row, double* out) {
        for (Index j = 0; j < hidden; ++j)
          out[j] = scale * static_cast<double>(random.below(row * hidden + j, 2 * a + 1) - a);
      };
    };
    Model m{integers(stream(spec, input), 1), integers(stream(spec, weight), unit), std::nullopt};
    if (spec.with_bias) {
      m.bias = [random = stream(spec, bias), a, unit](Index v) {
        return unit * static_cast<double>(random.below(v, 2 * a + 1) - a);
      };
    }
    return m;
  };
  return assemble(
      spec,
      model(spec.student_hidden, Purpose::student_input, Purpose::student_weight, Purpose::student_bias),
      model(teacher_hidden(spec), Purpose::teacher_input, Purpose::teacher_weight, Purpose::teacher_bias));
}

Case make_padded_vocab(const CaseSpec& spec, double strength) {
  // Between one entry and a quarter of the vocabulary is padding; a vocabulary of one has none.
  const Index padding = 1 + stream(spec, Purpose::case_choice).below(0, std::max<Index>(1, spec.vocab / 4));
  const Index valid = spec.options.valid_vocab.value_or(std::max<Index>(1, spec.vocab - padding));

  // Padding rows: zeros; ten times as large as the others; NaN.
  const double factor = strength == 0 ? 0 : strength == 1 ? 10 : nan;
  Models models = independent_models(spec, 3);
  const auto pad = [&](Model& model, Index hidden) {
    model.weight = [weight = model.weight, valid, factor, hidden](Index v, double* out) {
      weight(v, out);
      if (v >= valid)
        for (Index j = 0; j < hidden; ++j) out[j] *= factor;
    };
    if (model.bias) {
      model.bias = [bias = *model.bias, valid, factor](Index v) {
        return v < valid ? bias(v) : factor * bias(v);
      };
    }
  };
  pad(models.student, spec.student_hidden);
  pad(models.teacher, teacher_hidden(spec));
  Case c = assemble(spec, models.student, models.teacher);
  c.options.valid_vocab = valid;
  return c;
}

// Everything at the end of a dimension carries weight: the last hidden column lifts the last vocabulary entry
// by 4 to 8 nats for the student and by 2 to 4 for the teacher.
Case make_sizes(const CaseSpec& spec, double) {
  Models models = independent_models(spec, 2);
  const auto emphasise = [&](Model& model, Index hidden, Purpose input, double lift) {
    model.input = [row = model.input, hidden, random = stream(spec, input)](Index t, double* out) {
      row(t, out);
      out[hidden - 1] = 1 + random.uniform(t);
    };
    model.weight = [row = model.weight, hidden, lift, last = spec.vocab - 1](Index v, double* out) {
      row(v, out);
      if (v == last) out[hidden - 1] = lift;
    };
  };
  emphasise(models.student, spec.student_hidden, Purpose::student_choice, 4);
  emphasise(models.teacher, teacher_hidden(spec), Purpose::teacher_choice, 2);
  return assemble(spec, models.student, models.teacher);
}

Case make_ignored_labels(const CaseSpec& spec, double strength) {
  // uniform() < 1, so that strength 1 ignores every token.
  const auto ignored = [strength, random = stream(spec, Purpose::labels)](Index t) {
    return random.uniform(2 * t) < strength;
  };

  Models models = independent_models(spec, 3);
  const Random choice = stream(spec, Purpose::token_choice);
  const auto poison = [&](Model& model, Index hidden, double sign) {
    model.input = [row = model.input, hidden, sign, ignored, choice](Index t, double* out) {
      row(t, out);
      if (!ignored(t)) return;
      switch (choice.below(t, 4)) {
        case 0: return;  // nothing but the label says that it is ignored
        case 1: std::fill_n(out, hidden, nan); return;
        case 2: std::fill_n(out, hidden, sign * infinity); return;
        case 3: out[choice.below(t, hidden)] = nan; return;
      }
    };
  };
  poison(models.student, spec.student_hidden, 1);
  poison(models.teacher, teacher_hidden(spec), -1);
  Case c = assemble(spec, models.student, models.teacher);

  // Labels are compared, never used as an index: a few point outside the vocabulary.
  const auto label = [&, random = stream(spec, Purpose::labels)](Index t) -> std::int64_t {
    if (ignored(t)) return spec.options.ignore_index;
    const Index kind = choice.below(t, 16);
    const std::int64_t id = kind == 0   ? -1
                            : kind == 1 ? std::int64_t{1} << 40
                                        : random.below(2 * t + 1, spec.vocab);
    return id == spec.options.ignore_index ? id + 1 : id;
  };
  c.labels.emplace();
  for (Index t : token_rows(spec)) c.labels->push_back(label(t));
  return c;
}

}  // namespace fljsd
