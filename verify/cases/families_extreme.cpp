// SPDX-License-Identifier: Apache-2.0
// Families whose logits, products or elements are of extreme size.
#include <algorithm>
#include <cmath>
#include <limits>

#include "verify/cases/family_makers.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

// The first columns are switches: each token turns on one, and each switch lifts one vocabulary entry of its
// own by `lift` nats. Student and teacher throw the same switch for about half of the tokens; elsewhere they
// are certain of different entries. The other columns add a logit of at most sqrt(their number).
Case make_peaked(const CaseSpec& spec, double lift) {
  const Index narrow = std::min(spec.student_hidden, teacher_hidden(spec));
  const Index switches = std::clamp<Index>(narrow / 2, 1, std::min<Index>(8, spec.vocab));
  const Permutation entry(stream(spec, Purpose::vocab_choice), spec.vocab);
  const Random common = stream(spec, Purpose::token_choice);

  const auto model = [&](Index hidden, Purpose input, Purpose weight, Purpose own_choice, Purpose bias) {
    Model m;
    m.input = [=, random = stream(spec, input), own = stream(spec, own_choice)](Index t, double* out) {
      const bool same = common.word(2 * t) & 1;
      const Index on = same ? common.below(2 * t + 1, switches) : own.below(t, switches);
      for (Index j = 0; j < switches; ++j) out[j] = j == on;
      for (Index j = switches; j < hidden; ++j) out[j] = random.symmetric(t * hidden + j);
    };
    m.weight = [=, random = stream(spec, weight),
                scale = 1 / std::sqrt(static_cast<double>(std::max<Index>(1, hidden - switches)))](
                   Index v, double* out) {
      for (Index j = 0; j < switches; ++j) out[j] = entry(j) == v ? lift : 0;
      for (Index j = switches; j < hidden; ++j) out[j] = scale * random.symmetric(v * hidden + j);
    };
    m.bias = normal_bias(spec, bias);
    return m;
  };
  return assemble(spec,
                  model(spec.student_hidden, Purpose::student_input, Purpose::student_weight,
                        Purpose::student_choice, Purpose::student_bias),
                  model(teacher_hidden(spec), Purpose::teacher_input, Purpose::teacher_weight,
                        Purpose::teacher_choice, Purpose::teacher_bias));
}

// Every vocabulary entry belongs to one model; the other has it `depth` nats below its own entries: through
// column 0 for a finite depth, through a bias of −inf for an infinite one (an infinite weight would turn into
// NaN times zero). A vocabulary of one entry belongs to both.
Case make_disjoint(const CaseSpec& spec, double depth) {
  const Permutation order(stream(spec, Purpose::vocab_choice), spec.vocab);
  const bool by_bias = depth == infinity;
  const auto model = [&](Index hidden, Index mine, Purpose input, Purpose weight, Purpose bias) {
    const auto foreign = [=, size = spec.vocab](Index v) { return size > 1 && order(v) % 2 != mine; };
    const Index first = by_bias ? 0 : 1;
    const double scale = 1 / std::sqrt(static_cast<double>(std::max<Index>(1, hidden - first)));
    Model m{normal_rows(stream(spec, input), hidden, 1), normal_rows(stream(spec, weight), hidden, scale),
            normal_bias(spec, bias)};
    if (by_bias) {
      m.bias = [=, finite = m.bias](Index v) { return foreign(v) ? -infinity : finite ? (*finite)(v) : 0; };
    } else {
      m.input = [row = m.input](Index t, double* out) {
        row(t, out);
        out[0] = 1;
      };
      m.weight = [=, row = m.weight](Index v, double* out) {
        row(v, out);
        out[0] = foreign(v) ? -depth : 0;
      };
    }
    return m;
  };
  return assemble(
      spec,
      model(spec.student_hidden, 0, Purpose::student_input, Purpose::student_weight, Purpose::student_bias),
      model(teacher_hidden(spec), 1, Purpose::teacher_input, Purpose::teacher_weight, Purpose::teacher_bias));
}

// All logits of a row are raised by half of an offset common to the model plus half of one of the token's
// own, each uniform on ±size. Column 0 does it, with the offset rounded to the dtype as input and weight 1,
// so that the product is exact; a model of one column has the common offset as its bias.
Case make_offset(const CaseSpec& spec, double size) {
  Models models = independent_models(spec, 2);
  const auto raise = [&](Model& model, Index hidden, Purpose own) {
    const Random random = stream(spec, own);
    const double common = size / 2 * random.symmetric(0);
    if (hidden == 1) {
      model.bias = [=, bias = model.bias](Index v) { return common + (bias ? (*bias)(v) : 0); };
      return;
    }
    model.input = [=, row = model.input](Index t, double* out) {
      row(t, out);
      out[0] = common + size / 2 * random.symmetric(t + 1);
    };
    model.weight = [row = model.weight](Index v, double* out) {
      row(v, out);
      out[0] = 1;
    };
  };
  raise(models.student, spec.student_hidden, Purpose::student_choice);
  raise(models.teacher, teacher_hidden(spec), Purpose::teacher_choice);
  return assemble(spec, models.student, models.teacher);
}

// Columns repeat four kinds: subnormal inputs against weights near overflow, the reverse, subnormal against
// subnormal (the product underflows in every format), and ordinary. Subnormals are ±k · 2^(min_exponent − 3)
// with k = 0 … 7, large numbers ±2^(max_exponent − 2 − s) with 2^s about sqrt(hidden): in every format
// min_exponent + max_exponent = 1, so that their products are ±k · 2^(−4 − s) and the logits of order 1.
Case make_subnormal(const CaseSpec& spec, double) {
  const Format format = format_of(spec.dtype);
  const auto model = [&](Index hidden, Purpose input, Purpose weight, Purpose bias) {
    const double tiny = std::ldexp(1.0, format.min_exponent - 3);
    const int shrink = std::ilogb(static_cast<double>(hidden)) / 2;
    const double large = std::ldexp(1.0, format.max_exponent - 2 - shrink);
    const auto signed_by = [](std::uint64_t word, double x) { return word & 1 ? -x : x; };
    const auto elements = [=](const Random& random, Index tiny_kind, double ordinary) -> RowFunction {
      return [=](Index row, double* out) {
        for (Index j = 0; j < hidden; ++j) {
          const Index i = row * hidden + j, kind = j % 4;
          out[j] = kind == 3 ? ordinary * random.deviate(i)
                   : kind == 2 || kind == tiny_kind
                       ? signed_by(random.word(i), static_cast<double>(random.below(i, 8)) * tiny)
                       : signed_by(random.word(i), large);
        }
      };
    };
    Model m{elements(stream(spec, input), 0, 1),
            elements(stream(spec, weight), 1, 1 / std::sqrt(static_cast<double>(hidden))), std::nullopt};
    if (spec.with_bias) {
      m.bias = [=, random = stream(spec, bias)](Index v) {
        return signed_by(random.word(v), static_cast<double>(random.below(v, 8)) * tiny);
      };
    }
    return m;
  };
  return assemble(
      spec,
      model(spec.student_hidden, Purpose::student_input, Purpose::student_weight, Purpose::student_bias),
      model(teacher_hidden(spec), Purpose::teacher_input, Purpose::teacher_weight, Purpose::teacher_bias));
}

double wide_exponent_limit(const CaseSpec& spec) {
  return spec.dtype == DType::f16 ? 0x1p19 : 0x1p60;
}

// The condition number of a dot product is 2 Σ|a_j b_j| / |Σ a_j b_j| (Ogita, Rump, Oishi: Accurate sum and
// dot product, 2005). Here Σ a_j b_j is of order 1, from the columns in the middle; around them stand pairs,
// column p and column hidden − 1 − p, with the same inputs and opposite weights, which cancel exactly but for
// whoever rounds in between. With 2^e the power of two in [condition, 2 condition), products of pair 0 have
// magnitude 2^(e−1) times a number in [1, 4), those of the other pairs less, so that
// condition <= Σ|a_j b_j| over the pairs <= 24 condition. A product's exponent is shared out unevenly, by up
// to 2^±30 (2^±5 in fp16), between its factors. Fewer than three columns have no pairs.
Case make_wide_exponent(const CaseSpec& spec, double condition) {
  int e;
  if (std::frexp(condition, &e) == 0.5) --e;
  const Index imbalance = spec.dtype == DType::f16 ? 5 : 30;

  const auto model = [&](Index hidden, Purpose input, Purpose weight, Purpose bias, Purpose exponents) {
    const Index pairs = hidden < 3 ? 0 : std::max<Index>(1, hidden / 4);
    const Index middle = hidden - 2 * pairs;
    std::vector<double> input_scale, weight_scale;
    const Random random_exponent = stream(spec, exponents);
    for (Index p = 0; p < pairs; ++p) {
      // All other pairs lie below pair 0 by a factor of 2^ilogb(pairs) > pairs / 2 or more, so that together
      // they add less than 2^(e+3) <= 16 condition.
      const Index exponent = p == 0 ? e - 1
                                    : random_exponent.below(2 * p, std::max<Index>(1, e)) -
                                          std::ilogb(static_cast<double>(pairs));
      const Index tilt = random_exponent.below(2 * p + 1, 2 * imbalance + 1) - imbalance;
      const Index half = exponent >= 0 ? exponent / 2 : -(-exponent / 2);
      input_scale.push_back(std::ldexp(1.0, static_cast<int>(half + tilt)));
      weight_scale.push_back(std::ldexp(1.0, static_cast<int>(exponent - half - tilt)));
    }
    // `far_sign` is the sign of the far column of a pair relative to the near one.
    const auto elements = [=](const Random& random, std::vector<double> scale, double far_sign,
                              double middle_scale) -> RowFunction {
      return [=](Index row, double* out) {
        for (Index p = 0; p < pairs; ++p) {
          const Index i = row * hidden + p;
          const double magnitude = scale[static_cast<std::size_t>(p)] * (1 + random.uniform(i));
          out[p] = random.word(i) & 1 ? -magnitude : magnitude;
          out[hidden - 1 - p] = far_sign * out[p];
        }
        for (Index j = pairs; j < hidden - pairs; ++j)
          out[j] = middle_scale * random.deviate(row * hidden + j);
      };
    };
    return Model{elements(stream(spec, input), input_scale, 1, 1),
                 elements(stream(spec, weight), weight_scale, -1, 2 / std::sqrt(static_cast<double>(middle))),
                 normal_bias(spec, bias)};
  };
  return assemble(spec,
                  model(spec.student_hidden, Purpose::student_input, Purpose::student_weight,
                        Purpose::student_bias, Purpose::student_choice),
                  model(teacher_hidden(spec), Purpose::teacher_input, Purpose::teacher_weight,
                        Purpose::teacher_bias, Purpose::teacher_choice));
}

// Six kinds of tokens: ordinary; a NaN, or +inf everywhere, in the student's inputs; the same in the
// teacher's; inputs so large that the student's logits are finite but beyond fp32 (in fp16, where no product
// is, beyond fp16). The last column's weights, near 2^10, do the last.
Case make_overflow(const CaseSpec& spec, double) {
  const double huge = std::ldexp(1.0, std::min(format_of(spec.dtype).max_exponent, 400));
  Models models = independent_models(spec, 2);
  const Random choice = stream(spec, Purpose::token_choice);
  const auto spoil = [&](Model& model, Index hidden, Index nan_kind, Index infinite_kind, Index huge_kind) {
    model.input = [=, row = model.input](Index t, double* out) {
      row(t, out);
      out[hidden - 1] *= 0x1p-10;
      const Index kind = choice.below(2 * t, 6);
      if (kind == nan_kind) out[choice.below(2 * t + 1, hidden)] = nan;
      if (kind == infinite_kind) std::fill_n(out, hidden, infinity);
      if (kind == huge_kind) out[hidden - 1] = huge;
    };
    model.weight = [=, row = model.weight](Index v, double* out) {
      row(v, out);
      out[hidden - 1] = std::copysign(0x1p10 * (1 + std::abs(out[hidden - 1]) / 8), out[hidden - 1]);
    };
  };
  spoil(models.student, spec.student_hidden, 1, 2, 5);
  spoil(models.teacher, teacher_hidden(spec), 3, 4, -1);
  return assemble(spec, models.student, models.teacher);
}

}  // namespace fljsd
