// SPDX-License-Identifier: Apache-2.0
// What each input family promises. Seeds are fixed; statistical bounds are ones that a right generator with
// another seed would break with probability below 1e-9.
#include "verify/cases/families.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reference/linear_jsd.h"
#include "verify/cases/family_makers.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr DType all_dtypes[] = {DType::bf16, DType::f16, DType::f32, DType::f64};

CaseSpec spec_of(const char* family, std::uint64_t seed = 1) {
  CaseSpec spec;
  spec.family = find_family(family).number;
  spec.seed = seed;
  return spec;
}

// Pairs of hidden sizes: equal, either one larger, one column only.
std::vector<CaseSpec> with_hidden_sizes(CaseSpec spec) {
  std::vector<CaseSpec> specs;
  for (const auto& [student, teacher] : {std::pair<Index, Index>{16, 0},
                                         {16, 9},
                                         {9, 16},
                                         {1, 1},
                                         {1, 6},
                                         {6, 1},
                                         {2, 2},
                                         {3, 2},
                                         {2, 3},
                                         {48, 40}}) {
    specs.push_back(spec);
    specs.back().student_hidden = student;
    specs.back().teacher_hidden = teacher;
  }
  return specs;
}

std::string about(const CaseSpec& spec) {
  return std::string(find_family(spec.family).name) + " seed " + std::to_string(spec.seed) + " tokens " +
         std::to_string(spec.tokens) + " hidden " + std::to_string(spec.student_hidden) + "/" +
         std::to_string(spec.teacher_hidden) + " vocab " + std::to_string(spec.vocab) + " " +
         name(spec.dtype) + (spec.with_bias ? " biased" : "");
}

// A logit as a sum in double, and what its rounding errors are bounded by: with n products, each exact in
// double for formats other than f64, |error| <= (n + 2) 2^-53 Σ|products| (Higham, section 3.1).
struct Logit {
  double value = 0, absolute = 0;  // Σ products + bias, Σ|products| + |bias|
  double error = 0;
};
Logit logit(const MatrixView& input, const MatrixView& weight, const std::optional<VectorView>& bias, Index t,
            Index v) {
  Logit sum;
  for (Index j = 0; j < input.cols; ++j) {
    const double product = input(t, j) * weight(v, j);
    sum.value += product;
    sum.absolute += std::abs(product);
  }
  if (bias) {
    sum.value += (*bias)(v);
    sum.absolute += std::abs((*bias)(v));
  }
  sum.error = static_cast<double>(input.cols + 2) * 0x1p-53 * sum.absolute;
  return sum;
}
Logit student_logit(const Problem& p, Index t, Index v) {
  return logit(p.student_input, p.student_weight, p.student_bias, t, v);
}
Logit teacher_logit(const Problem& p, Index t, Index v) {
  return logit(p.teacher_input, p.teacher_weight, p.teacher_bias, t, v);
}

std::vector<double> elements(const Tensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  load_run(tensor.dtype, tensor.data.get(), 0, tensor.elements(), values.data());
  return values;
}

std::vector<const Tensor*> tensors(const Case& c) {
  std::vector<const Tensor*> all{&c.student_input, &c.student_weight, &c.teacher_input, &c.teacher_weight};
  if (c.student_bias) all.push_back(&*c.student_bias);
  if (c.teacher_bias) all.push_back(&*c.teacher_bias);
  return all;
}

bool all_finite(const Tensor& tensor) {
  const std::vector<double> values = elements(tensor);
  return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
}

// Fowler, Noll, Vo: FNV-1a with 64 bits, over all bytes of all tensors and labels.
std::uint64_t checksum(const Case& c) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](const void* data, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i)
      hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3;
  };
  for (const Tensor* tensor : tensors(c)) add(tensor->data.get(), tensor->bytes());
  if (c.labels) add(c.labels->data(), c.labels->size() * sizeof(std::int64_t));
  return hash;
}

// The table itself.

// Catches: a family that cannot be named on a command line, or two that answer to one name.
TEST(Families, AreNumberedAndNamed) {
  ASSERT_EQ(families().size(), 16u);
  std::set<std::string_view> names;
  for (const Family& family : families()) {
    EXPECT_EQ(family.number, static_cast<int>(names.size()) + 1);
    EXPECT_TRUE(names.insert(family.name).second);
    EXPECT_EQ(family.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz-"), std::string_view::npos);
    EXPECT_EQ(family.description.back(), '.');
    EXPECT_EQ(&find_family(family.number), &family);
    EXPECT_EQ(&find_family(family.name), &family);
    EXPECT_EQ(&find_family(std::to_string(family.number)), &family);
  }
}

std::string refusal(const CaseSpec& spec) {
  try {
    make_case(spec);
  } catch (const InvalidProblem& error) {
    return error.what();
  }
  return "accepted";
}

// Catches: bad input that is not refused, or refused without naming field, value and what is allowed.
TEST(Families, RefuseBadInputInOneSentence) {
  EXPECT_THROW(
      {
        try {
          find_family("kaimng");
        } catch (const InvalidProblem& error) {
          EXPECT_NE(std::string(error.what())
                        .find("family is 'kaimng', but it must be one of 1 published, 2 kaiming, "),
                    std::string::npos);
          throw;
        }
      },
      InvalidProblem);
  const auto expect = [](CaseSpec spec, const char* sentence) { EXPECT_EQ(refusal(spec), sentence); };
  CaseSpec spec;
  spec.family = 17;
  EXPECT_EQ(refusal(spec).substr(0, 41), "family is 17, but it must be one of 1 pub");

  spec = spec_of("kaiming");
  spec.tokens = -1;
  expect(spec, "student_input has shape [-1, 16], but sizes must not be negative.");
  spec = spec_of("kaiming");
  spec.student_hidden = 0;
  spec.teacher_hidden = 3;
  expect(spec, "student_input has hidden size 0, but it must be at least 1.");
  spec = spec_of("kaiming");
  spec.vocab = 0;
  expect(spec, "student_weight has vocab 0, but it must be at least 1.");
  spec = spec_of("kaiming");
  spec.vocab = Index{1} << 60;
  expect(spec, "student_weight has shape [1152921504606846976, 16], but it must have at most 2^59 elements.");
  spec = spec_of("kaiming");
  spec.options.beta = 1.5;
  expect(spec, "beta is 1.5, but it must be in [0, 1].");
  spec = spec_of("kaiming");
  spec.strength = 1;
  expect(spec, "strength is 1, but the family kaiming has none.");
  spec = spec_of("kaiming");
  spec.token_rows = {3, 8};
  expect(spec, "token_rows holds 8, but it must be in [0, 8).");
  spec = spec_of("peaked");
  spec.strength = std::numeric_limits<double>::quiet_NaN();
  expect(spec,
         "strength is nan, but for the family peaked (nats by which a token's entry is lifted) it must be in "
         "[1, "
         "1000].");
  spec = spec_of("padded-vocab");
  spec.strength = 0.5;
  EXPECT_NE(refusal(spec).find("must be 0, 1 or 2."), std::string::npos);
  spec = spec_of("wide-exponent");
  spec.dtype = DType::f16;
  spec.strength = 1e9;
  EXPECT_NE(refusal(spec).find("must be at most 524288 in f16."), std::string::npos);
  spec = spec_of("integer-grid");
  spec.student_hidden = 4096;
  spec.strength = 64;
  EXPECT_NE(refusal(spec).find("must be at most 63 for hidden sizes 4096 and 4096."), std::string::npos);
  spec.strength.reset();
  spec.student_hidden = Index{1} << 24;
  EXPECT_NE(refusal(spec).find("must be at most 0 for hidden sizes"), std::string::npos);
}

// Catches: a default that leaves the allowed range, or seeds that do not explore it: of 400 log-uniform draws
// one lies in the lowest and one in the highest twentieth but for probability 2 · 0.95^400 = 2.5e-9.
TEST(Families, StrengthsOfSeedsCoverTheirRange) {
  const auto range = [](const char* family) {
    double low = infinity, high = 0;
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
      const double x = resolved_strength(spec_of(family, seed));
      low = std::min(low, x);
      high = x == infinity ? high : std::max(high, x);
    }
    return std::pair(low, high);
  };
  const auto expect_log_uniform = [&](const char* family, double low, double high) {
    const auto [seen_low, seen_high] = range(family);
    const double twentieth = std::pow(high / low, 0.05);
    EXPECT_GE(seen_low, low * (1 - 0x1p-40)) << family;
    EXPECT_LE(seen_low, low * twentieth) << family;
    EXPECT_LE(seen_high, high * (1 + 0x1p-40)) << family;
    // Half of the seeds of `disjoint` have an infinite depth: 200 draws, 3.5e-5, which this seed range
    // passes.
    EXPECT_GE(seen_high, high / twentieth) << family;
  };
  expect_log_uniform("lm-like", 0.05, 1);
  expect_log_uniform("near-identical", 1e-6, 1e-1);
  expect_log_uniform("peaked", 10, 200);
  expect_log_uniform("disjoint", 30, 2000);
  expect_log_uniform("offset", 10, 1e4);
  expect_log_uniform("wide-exponent", 1e2, 1e6);
  expect_log_uniform("anti-correlated", 1, 10);
  // Whole numbers, log-uniform before they are cut.
  EXPECT_EQ(range("integer-grid").first, 1);
  EXPECT_GE(range("integer-grid").second, std::floor(128 / std::pow(128, 0.05)));
  EXPECT_LE(range("integer-grid").second, 127);
  EXPECT_EQ(range("padded-vocab"), std::pair(0.0, 2.0));
  EXPECT_EQ(range("ignored-labels").second, 1);

  CaseSpec spec = spec_of("peaked");
  spec.strength = 77;
  EXPECT_EQ(resolved_strength(spec), 77);
  EXPECT_EQ(resolved_strength(spec_of("published")), 0);
}

// What all families have in common.

// Catches: a family that breaks for small sizes, unequal hidden sizes, a dtype or biases; tensors of the
// wrong shape; NaN or infinity where none is declared.
TEST(Families, AreValidForAllSizesAndDtypes) {
  for (const Family& family : families()) {
    for (Index vocab : {1, 2, 33}) {
      CaseSpec base;
      base.family = family.number;
      base.vocab = vocab;
      base.tokens = 5;
      base.seed = static_cast<std::uint64_t>(vocab);
      for (CaseSpec spec : with_hidden_sizes(base)) {
        for (DType dtype : all_dtypes) {
          for (bool with_bias : {false, true}) {
            spec.dtype = dtype;
            spec.with_bias = with_bias;
            const Case c = make_case(spec);
            const Problem problem = c.problem();
            validate(problem, c.options);
            ASSERT_EQ(problem.tokens(), 5) << about(spec);
            ASSERT_EQ(problem.vocab(), vocab) << about(spec);
            ASSERT_EQ(problem.student_input.cols, spec.student_hidden) << about(spec);
            ASSERT_EQ(problem.teacher_input.cols, teacher_hidden(spec)) << about(spec);
            for (const Tensor* tensor : tensors(c)) ASSERT_EQ(tensor->dtype, dtype) << about(spec);
            if (with_bias) {
              ASSERT_TRUE(c.student_bias && c.teacher_bias) << about(spec);
            }
            if (family.finiteness == Finiteness::no_promise) continue;
            for (double beta : {0.0, 0.5, 1.0}) {
              if (beta != 0.5 && family.finiteness != Finiteness::always) continue;
              Options options = c.options;
              options.beta = beta;
              const Result result = linear_jsd<double>(problem, options, Wanted::all());
              ASSERT_TRUE(std::isfinite(*result.loss)) << about(spec) << " beta " << beta;
              ASSERT_TRUE(result.student_input_grad.allFinite()) << about(spec) << " beta " << beta;
              ASSERT_TRUE(result.student_weight_grad.allFinite()) << about(spec) << " beta " << beta;
            }
          }
        }
      }
    }
  }
}

// Catches: an input row that depends on which other rows are made, or on their order.
TEST(Families, MakeTheSameRowsInASample) {
  for (const Family& family : families()) {
    CaseSpec spec;
    spec.family = family.number;
    spec.tokens = 40;
    spec.teacher_hidden = 11;
    spec.with_bias = true;
    const Case whole = make_case(spec);
    const std::vector<Index> rows{39, 0, 17, 17};
    spec.token_rows = rows;
    const Case sample = make_case(spec);
    EXPECT_EQ(sample.problem().tokens(), 4);
    for (const auto& [part, full] : {std::pair{&sample.student_input, &whole.student_input},
                                     std::pair{&sample.teacher_input, &whole.teacher_input}}) {
      const std::size_t row = static_cast<std::size_t>(part->shape[1]) * size_of(part->dtype);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(std::memcmp(part->data.get() + i * row,
                              full->data.get() + static_cast<std::size_t>(rows[i]) * row, row),
                  0)
            << family.name;
      }
    }
    EXPECT_EQ(sample.labels.has_value(), whole.labels.has_value());
    if (sample.labels) {
      for (std::size_t i = 0; i < rows.size(); ++i)
        EXPECT_EQ((*sample.labels)[i], (*whole.labels)[static_cast<std::size_t>(rows[i])]);
    }
    EXPECT_EQ(elements(sample.student_weight).size(), elements(whole.student_weight).size());
    spec.token_rows = std::vector<Index>{};
    EXPECT_EQ(make_case(spec).problem().tokens(), 0);
  }
}

// Catches: a seed that is ignored or cut to 32 bits, and families that share their numbers.
TEST(Families, SeedsAndFamiliesGiveDifferentCases) {
  std::set<std::uint64_t> seen;
  std::size_t made = 0;
  for (const Family& family : families()) {
    for (std::uint64_t seed :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
      CaseSpec spec;
      spec.family = family.number;
      spec.seed = seed;
      seen.insert(checksum(make_case(spec)));
      ++made;
      EXPECT_EQ(checksum(make_case(spec)), checksum(make_case(spec)));
    }
  }
  EXPECT_EQ(seen.size(), made);
}

// Catches: any change of what a spec stands for, on any machine, compiler or with any number of threads. If a
// family is changed on purpose, its number here changes too, and noted recipes, the corpus and the golden
// cases with it.
TEST(Families, AreTheSameBitsForEver) {
  struct Known {
    std::uint64_t plain, mixed;
  };
  const Known known[] = {
      {0xcf2e34669742316d, 0x57d53ae7e34dd672},  // published
      {0xd87196df1fdcae98, 0x7ddf4a556d81143c},  // kaiming
      {0x031da1e6f381e976, 0x4bdaa4d336c52782},  // lm-like
      {0x6c4f1d6113ccb785, 0xdce1ae3a0fb1f1c6},  // near-identical
      {0x5ff04e7e72192d97, 0x833ce13013b4aa5a},  // peaked
      {0x27c079bc46ca7c6b, 0xd678ac33ebdbbce2},  // disjoint
      {0x4ad8cd4534321bd6, 0x4fa61f341238927f},  // offset
      {0x87914e6b00322388, 0xd6457c276364de47},  // subnormal
      {0x747a18e59142b3eb, 0x731c29c8fcf90e08},  // wide-exponent
      {0x92e6b020530747bd, 0x5010bead6281c340},  // integer-grid
      {0xa683a8907e50f381, 0x8d2705d620bda629},  // padded-vocab
      {0x5715cd1005ed0140, 0xfddb73a99fa65eaf},  // sizes
      {0x9d873d87d5c7951c, 0x6bd7c511685d40ab},  // ignored-labels
      {0x87ef85c78081dd3c, 0x8109906d754078ba},  // equal-rows
      {0x1418cbd11add3fb8, 0x36776769658edcde},  // overflow
      {0x11ff9f428204cf89, 0x7a01ab12392d28d7},  // anti-correlated
  };
  for (const Family& family : families()) {
    CaseSpec spec;
    spec.family = family.number;
    spec.seed = 7;
    const std::uint64_t plain = checksum(make_case(spec));
    spec.dtype = DType::f64;
    spec.teacher_hidden = 5;
    spec.with_bias = true;
    const std::uint64_t mixed = checksum(make_case(spec));
    const Known& expected = known[family.number - 1];
    EXPECT_TRUE(plain == expected.plain && mixed == expected.mixed)
        << family.name << std::hex << ": {0x" << plain << ", 0x" << mixed << "},";
  }
}

// The promises, family by family.

// Catches: values other than the k/256 that torch.rand draws in bf16, or not equally often. Pearson's
// statistic passes freedom + 2 sqrt(freedom t) + 2 t with probability e^-t (Laurent, Massart 2000), t = 21.
TEST(Published, IsUniformOnMultiplesOfOne256th) {
  CaseSpec spec = spec_of("published");
  spec.tokens = 300;
  spec.student_hidden = 64;
  spec.teacher_hidden = 80;
  spec.vocab = 2000;
  const Case c = make_case(spec);
  EXPECT_FALSE(c.student_bias || c.teacher_bias || c.labels);
  for (const Tensor* tensor : tensors(c)) {
    std::vector<double> counts(256);
    for (double x : elements(*tensor)) {
      ASSERT_TRUE(x >= 0 && x < 1 && x * 256 == std::floor(x * 256)) << x;
      ++counts[static_cast<std::size_t>(x * 256)];
    }
    const double expected = static_cast<double>(tensor->elements()) / 256;
    double statistic = 0;
    for (double count : counts) statistic += (count - expected) * (count - expected) / expected;
    EXPECT_LE(statistic, 255 + 2 * std::sqrt(255 * 21.0) + 2 * 21);
  }
}

// Catches: a wrong scale of the weights. U(±b): mean square b²/3, its variance b⁴ (1/5 − 1/9).
TEST(Kaiming, HasTheStatedDistributions) {
  for (const CaseSpec& spec : with_hidden_sizes(spec_of("kaiming"))) {
    CaseSpec large = spec;
    large.dtype = DType::f64;
    large.vocab = 4000;
    large.tokens = 4000;
    const Case c = make_case(large);
    for (const Tensor* weight : {&c.student_weight, &c.teacher_weight}) {
      const double bound = 1 / std::sqrt(static_cast<double>(weight->shape[1]));
      double square = 0;
      for (double x : elements(*weight)) {
        ASSERT_LE(std::abs(x), bound);
        square += x * x / static_cast<double>(weight->elements());
      }
      EXPECT_LE(std::abs(square / (bound * bound) - 1.0 / 3),
                6.5 * std::sqrt((1.0 / 5 - 1.0 / 9) / static_cast<double>(weight->elements())));
    }
    double square = 0;
    for (double x : elements(c.student_input))
      square += x * x / static_cast<double>(c.student_input.elements());
    EXPECT_LE(std::abs(square - 1), 6.5 * std::sqrt(2 / static_cast<double>(c.student_input.elements())));
  }
}

// Catches: logits that do not resemble a language model's, or a noise that is not the stated one.
TEST(LmLike, LooksLikeALanguageModel) {
  CaseSpec spec = spec_of("lm-like");
  spec.tokens = 64;
  spec.student_hidden = 128;
  spec.vocab = 4096;
  spec.dtype = DType::f64;
  for (double noise : {0.1, 1.0}) {
    spec.strength = noise;
    for (Index teacher : {128, 100, 160}) {
      spec.teacher_hidden = teacher;
      const Case c = make_case(spec);
      const Problem problem = c.problem();

      // Column 0 is Zipf's law in some order.
      std::vector<double> unigram;
      for (Index v = 0; v < spec.vocab; ++v) {
        unigram.push_back(problem.teacher_weight(v, 0));
        ASSERT_EQ(problem.student_weight(v, 0), unigram.back());
      }
      std::sort(unigram.begin(), unigram.end(), std::greater<>());
      for (Index rank = 0; rank < spec.vocab; ++rank)
        ASSERT_NEAR(unigram[static_cast<std::size_t>(rank)], -std::log(static_cast<double>(rank) + 2.7),
                    1e-12);

      std::vector<double> most_likely;
      double noise_square = 0;
      for (Index t = 0; t < spec.tokens; ++t) {
        const LogitRows<double> rows = logits<double>(problem, c.options, t);
        const auto [low, high] = std::minmax_element(rows.teacher.begin(), rows.teacher.end());
        EXPECT_TRUE(*high - *low > 10 && *high - *low < 40) << *high - *low;
        double sum = 0, mean = 0;
        for (double y : rows.teacher) sum += std::exp(y - *high);
        most_likely.push_back(1 / sum);
        for (std::size_t v = 0; v < rows.teacher.size(); ++v)
          mean += (rows.student[v] - rows.teacher[v]) / 4096;
        for (std::size_t v = 0; v < rows.teacher.size(); ++v) {
          const double d = rows.student[v] - rows.teacher[v] - mean;
          noise_square += d * d / (4096 * 64);
        }
      }
      // Some tokens are certain, some are open, most lie between. (What the description means by peaked.)
      std::sort(most_likely.begin(), most_likely.end());
      EXPECT_LT(most_likely[6], 0.2);
      EXPECT_TRUE(most_likely[32] > 0.2 && most_likely[32] < 0.8) << most_likely[32];
      EXPECT_GT(most_likely[57], 0.9);
      // Inputs and weights each give half of the variance, the weights more where the pull, of square length
      // (B/2)² with B uniform on 0 … 16, has lengthened the input: 1/2 + (1 + 21.3/99)/2 = 1.11 for the
      // fewest columns. Columns that one model alone has add a quarter.
      EXPECT_TRUE(noise_square > 0.9 * noise * noise && noise_square < 1.5 * noise * noise) << noise_square;
    }
  }
}

// Every y_v − x_v is ± gap · n_v, |n_v| <= 4.9 with variance 1, but for the roundings of two factors to bf16,
// (1 + 2^-8)² in all. The sample variance of n numbers of kurtosis below 3 has variance at most 2/n. Catches:
// a gap lost in rounding, and unequal hidden sizes that bring other differences in.
TEST(NearIdentical, DiffersByTheGap) {
  for (DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (double gap : {1e-1, 1e-3, 1e-6}) {
      CaseSpec base = spec_of("near-identical", 5);
      base.strength = gap;
      base.vocab = 1000;
      base.tokens = 3;
      base.dtype = dtype;
      base.with_bias = true;
      for (const CaseSpec& spec : with_hidden_sizes(base)) {
        const Case c = make_case(spec);
        const Problem problem = c.problem();
        for (Index t = 0; t < spec.tokens; ++t) {
          double square = 0;
          for (Index v = 0; v < spec.vocab; ++v) {
            const Logit x = student_logit(problem, t, v), y = teacher_logit(problem, t, v);
            const double d = y.value - x.value;
            ASSERT_LE(std::abs(d), gap * Random::max_deviate * 1.01 + x.error + y.error) << about(spec);
            square += d * d / static_cast<double>(spec.vocab);
          }
          // A teacher of one column has the gap in its bias, whose fp16 values near 1e-6 are subnormal:
          // multiples of 2^-24, rounding errors of variance (2^-24)²/12 at most.
          const bool coarse = dtype == DType::f16 && teacher_hidden(spec) == 1;
          const double rounding = coarse ? 0x1p-48 / 12 / (gap * gap) + 0.01 : 0.01;
          EXPECT_LE(std::abs(square / (gap * gap) - 1), 6.5 * std::sqrt(2.0 / 1000) + 2 * rounding)
              << about(spec);
        }
      }
    }
  }
}

// Catches: a peak that the other columns can hide, or switches that both models always throw alike.
TEST(Peaked, OneEntryDominates) {
  for (double lift : {10.0, 200.0}) {
    CaseSpec base = spec_of("peaked");
    base.strength = lift;
    base.tokens = 200;
    for (const CaseSpec& spec : with_hidden_sizes(base)) {
      const Case c = make_case(spec);
      const Problem problem = c.problem();
      int alike = 0;
      for (Index t = 0; t < spec.tokens; ++t) {
        Index peak[2];
        for (int model = 0; model < 2; ++model) {
          double first = -infinity, second = -infinity;
          for (Index v = 0; v < spec.vocab; ++v) {
            const double x = (model ? teacher_logit : student_logit)(problem, t, v).value;
            if (x > first) {
              peak[model] = v;
              second = first;
              first = x;
            } else {
              second = std::max(second, x);
            }
          }
          // The lift is rounded once; each of n noise columns adds at most 1/sqrt(n), rounded twice.
          const double columns = static_cast<double>(model ? teacher_hidden(spec) : spec.student_hidden);
          EXPECT_GE(first - second, lift * (1 - 0x1p-8) - 2 * std::sqrt(columns) * 1.01) << about(spec);
        }
        alike += peak[0] == peak[1];
      }
      const Index narrow = std::min(spec.student_hidden, teacher_hidden(spec));
      const double switches = std::clamp<double>(static_cast<double>(narrow / 2), 1, 8);
      const double expected = static_cast<double>(spec.tokens) * (0.5 + 0.5 / switches);
      EXPECT_LE(std::abs(alike - expected), 6.5 * std::sqrt(0.25 * static_cast<double>(spec.tokens)))
          << about(spec);
    }
  }
}

// Catches: an entry that belongs to both models or to neither, and a vocabulary of one without an owner.
TEST(Disjoint, SupportsDoNotMeet) {
  for (double depth : {infinity, 1000.0}) {
    for (Index vocab : {1, 2, 3, 40}) {
      CaseSpec base = spec_of("disjoint");
      base.strength = depth;
      base.vocab = vocab;
      for (CaseSpec spec : with_hidden_sizes(base)) {
        spec.with_bias = vocab == 3;
        const Case c = make_case(spec);
        const Problem problem = c.problem();
        for (Index t = 0; t < spec.tokens; ++t) {
          Index student_owned = 0;
          for (Index v = 0; v < vocab; ++v) {
            // Half of the depth separates "own" from "foreign": the other columns add N(0, 1), at most
            // 24 sqrt(47) = 165 (and a bias at most 4.9).
            const bool student = student_logit(problem, t, v).value > -500;
            const bool teacher = teacher_logit(problem, t, v).value > -500;
            EXPECT_TRUE(vocab == 1 ? student && teacher : student != teacher) << about(spec);
            student_owned += student;
          }
          EXPECT_TRUE(vocab == 1 || (student_owned > 0 && student_owned < vocab)) << about(spec);
        }
        EXPECT_EQ(c.student_bias.has_value(), (depth == infinity) || spec.with_bias);
        // Binary entropy of 1/2, to the accuracy of the float64 tier: 40 terms, each within a few 2^-53.
        const Result result = linear_jsd<double>(problem, c.options);
        EXPECT_NEAR(*result.loss, vocab == 1 ? 0 : std::log(2), 1e-13) << about(spec);
      }
    }
  }
}

// Catches: an offset that rounding spreads over the row, or that is not the token's own.
TEST(Offset, RaisesWholeRows) {
  for (DType dtype : {DType::bf16, DType::f16}) {
    CaseSpec base = spec_of("offset", 3);
    base.strength = 1e4;
    base.dtype = dtype;
    base.tokens = 50;
    for (const CaseSpec& spec : with_hidden_sizes(base)) {
      const Case c = make_case(spec);
      for (const auto& [input, weight, bias] :
           {std::tuple{&c.student_input, &c.student_weight, &c.student_bias},
            std::tuple{&c.teacher_input, &c.teacher_weight, &c.teacher_bias}}) {
        const MatrixView a = input->matrix(), w = weight->matrix();
        if (a.cols == 1) {
          ASSERT_TRUE(bias->has_value());
          for (double b : elements(**bias)) EXPECT_EQ(b, elements(**bias)[0]);
          continue;
        }
        std::set<double> offsets;
        for (Index v = 0; v < spec.vocab; ++v) EXPECT_EQ(w(v, 0), 1);
        for (Index t = 0; t < spec.tokens; ++t) {
          EXPECT_LE(std::abs(a(t, 0)), 1e4 * (1 + 0x1p-8));
          offsets.insert(a(t, 0));
        }
        // Offsets are spread over 1e4, in bf16 with steps of at most 64: of 50, more than 25 differ.
        EXPECT_GE(offsets.size(), 25u) << about(spec);
      }
    }
  }
}

// Catches: "subnormals" that are normal numbers in the case's format, or that do not matter.
TEST(Subnormal, FlushingToZeroChangesTheLogits) {
  for (DType dtype : all_dtypes) {
    for (const auto& [student, teacher] : {std::pair<Index, Index>{16, 16}, {64, 5}, {1, 2}}) {
      CaseSpec spec = spec_of("subnormal");
      spec.dtype = dtype;
      spec.student_hidden = student;
      spec.teacher_hidden = teacher;
      const Case c = make_case(spec);
      const double smallest_normal = std::ldexp(1.0, format_of(dtype).min_exponent);
      for (const auto& [input, weight] :
           {std::pair{&c.student_input, &c.student_weight}, std::pair{&c.teacher_input, &c.teacher_weight}}) {
        const MatrixView a = input->matrix(), w = weight->matrix();
        double largest = 0, most_changed = 0;
        for (Index t = 0; t < spec.tokens; ++t) {
          for (Index v = 0; v < spec.vocab; ++v) {
            double x = 0, flushed = 0;
            for (Index j = 0; j < a.cols; ++j) {
              const double product = a(t, j) * w(v, j);
              x += product;
              if (std::abs(a(t, j)) >= smallest_normal && std::abs(w(v, j)) >= smallest_normal)
                flushed += product;
            }
            largest = std::max(largest, std::abs(x));
            most_changed = std::max(most_changed, std::abs(x - flushed));
          }
        }
        EXPECT_LE(largest, 20) << about(spec);
        // The largest of at least 256 sums of ±k/16 (at least one column of them, shrunk by at most 1/8).
        EXPECT_GE(most_changed, 0.05) << about(spec);
      }
    }
  }
}

// Catches: pairs that do not cancel exactly, a condition number that is not the stated one, and overflow.
TEST(WideExponent, CancelsWithTheStatedCondition) {
  for (DType dtype : all_dtypes) {
    CaseSpec base = spec_of("wide-exponent", 2);
    base.dtype = dtype;
    for (double condition : {100.0, 1e5, wide_exponent_limit(base)}) {
      base.strength = condition;
      base.tokens = 4;
      for (const CaseSpec& spec : with_hidden_sizes(base)) {
        const Case c = make_case(spec);
        for (const Tensor* tensor : tensors(c)) ASSERT_TRUE(all_finite(*tensor)) << about(spec);
        for (const auto& [input, weight] : {std::pair{&c.student_input, &c.student_weight},
                                            std::pair{&c.teacher_input, &c.teacher_weight}}) {
          const MatrixView a = input->matrix(), w = weight->matrix();
          const Index hidden = a.cols, pairs = hidden < 3 ? 0 : std::max<Index>(1, hidden / 4);
          for (Index t = 0; t < spec.tokens; ++t) {
            for (Index v = 0; v < spec.vocab; ++v) {
              double in_pairs = 0, rest = 0;
              for (Index p = 0; p < pairs; ++p) {
                const Index far = hidden - 1 - p;
                ASSERT_EQ(a(t, far), a(t, p));
                ASSERT_EQ(w(v, far), -w(v, p));
                in_pairs += 2 * std::abs(a(t, p) * w(v, p));
              }
              for (Index j = pairs; j < hidden - pairs; ++j) rest += a(t, j) * w(v, j);
              if (pairs > 0) {
                // Rounding of the factors: (1 ± 2^-8)².
                ASSERT_GE(in_pairs, condition * 0.99) << about(spec);
                ASSERT_LE(in_pairs, 24 * condition * 1.01) << about(spec);
              }
              // 2/sqrt(n) Σ of n products of deviates: at most 2 · 24 sqrt(n).
              ASSERT_LE(std::abs(rest), 48 * 1.01 * std::sqrt(static_cast<double>(hidden)));
            }
          }
        }
      }
    }
  }
}

// Catches: a partial sum that reaches 2^24 in some order, or a value off the grid or rounded by the dtype.
TEST(IntegerGrid, PartialSumsStayBelow2To24) {
  for (DType dtype : all_dtypes) {
    for (Index hidden : {1, 16, 1040, 4096}) {
      for (bool largest : {false, true}) {
        CaseSpec spec = spec_of("integer-grid", 4);
        spec.student_hidden = hidden;
        spec.teacher_hidden = hidden / 2;
        spec.vocab = 40;
        spec.dtype = dtype;
        spec.with_bias = true;
        spec.strength = largest ? static_cast<double>(integer_grid_limit(spec)) : 1;
        const Case c = make_case(spec);
        for (const auto& [input, weight, bias] :
             {std::tuple{&c.student_input, &c.student_weight, &c.student_bias},
              std::tuple{&c.teacher_input, &c.teacher_weight, &c.teacher_bias}}) {
          double unit = 1;  // the weights' power of two: all of them, and no coarser one, are multiples of it
          const std::vector<double> weights = elements(*weight), biases = elements(**bias),
                                    inputs = elements(*input);
          const auto on_grid = [&](double x) { return x / unit == std::floor(x / unit); };
          while (unit > 0x1p-24 && !std::all_of(weights.begin(), weights.end(), on_grid)) unit /= 2;
          EXPECT_TRUE(std::all_of(biases.begin(), biases.end(), on_grid)) << about(spec);
          double most_input = 0, most_weight = 0, most_bias = 0;
          for (double x : inputs) {
            ASSERT_EQ(x, std::floor(x));
            most_input = std::max(most_input, std::abs(x));
          }
          for (double w : weights) most_weight = std::max(most_weight, std::abs(w) / unit);
          for (double b : biases) most_bias = std::max(most_bias, std::abs(b) / unit);
          EXPECT_LT(static_cast<double>(input->shape[1]) * most_input * most_weight + most_bias, 0x1p24)
              << about(spec);
        }
      }
    }
  }
}

// Catches: padding that is not there, or that counts.
TEST(PaddedVocab, PaddingDoesNotExist) {
  for (double filling : {0.0, 1.0, 2.0}) {
    CaseSpec base = spec_of("padded-vocab", 6);
    base.strength = filling;
    base.with_bias = true;
    for (const CaseSpec& spec : with_hidden_sizes(base)) {
      const Case c = make_case(spec);
      ASSERT_TRUE(c.options.valid_vocab.has_value());
      const Index valid = *c.options.valid_vocab;
      ASSERT_TRUE(valid >= spec.vocab - spec.vocab / 4 && valid < spec.vocab);
      const MatrixView w = c.student_weight.matrix();
      for (Index v = valid; v < spec.vocab; ++v) {
        for (Index j = 0; j < w.cols; ++j) {
          EXPECT_EQ(w(v, j) == 0, filling == 0);
          EXPECT_EQ(std::isnan(w(v, j)), filling == 2);
        }
      }
      CaseSpec zeros = spec;
      zeros.strength = 0;
      const Case other = make_case(zeros);
      const Result a = linear_jsd<double>(c.problem(), c.options, Wanted::all());
      const Result b = linear_jsd<double>(other.problem(), other.options, Wanted::all());
      EXPECT_EQ(a.loss, b.loss);
      EXPECT_EQ(a.student_input_grad, b.student_input_grad);
      EXPECT_EQ(a.student_weight_grad, b.student_weight_grad);
    }
  }
  CaseSpec given = spec_of("padded-vocab");
  given.options.valid_vocab = 5;
  EXPECT_EQ(make_case(given).options.valid_vocab, 5);
}

// Catches: a last hidden column or vocabulary entry that could be dropped unnoticed.
TEST(Sizes, TheEndOfEachDimensionMatters) {
  for (Index size : awkward_sizes()) {
    for (const auto& [hidden, vocab] : {std::pair<Index, Index>{size, 33}, {17, size}}) {
      if (vocab == 1) continue;
      CaseSpec spec = spec_of("sizes");
      spec.student_hidden = hidden;
      spec.vocab = vocab;
      const Case c = make_case(spec);
      const Problem whole = c.problem();
      // The largest change of a token's loss; the mean could hide changes of both signs.
      const std::vector<double> losses = linear_jsd<double>(whole, c.options).token_loss;
      const auto change = [&](const Problem& problem, const Options& options) {
        const std::vector<double> others = linear_jsd<double>(problem, options).token_loss;
        double most = 0;
        for (std::size_t t = 0; t < losses.size(); ++t)
          most = std::max(most, std::abs(others[t] - losses[t]));
        return most;
      };
      if (hidden > 1) {
        Problem narrow = whole;
        for (MatrixView* m :
             {&narrow.student_input, &narrow.student_weight, &narrow.teacher_input, &narrow.teacher_weight})
          --m->cols;
        EXPECT_GE(change(narrow, c.options), 1e-2) << about(spec);
      }
      Options shorter = c.options;
      shorter.valid_vocab = vocab - 1;
      EXPECT_GE(change(whole, shorter), 1e-2) << about(spec);
    }
  }
}

TEST(Sizes, AwkwardSizesHoldTilesAndTheirNeighbours) {
  const auto sizes = awkward_sizes();
  EXPECT_TRUE(std::is_sorted(sizes.begin(), sizes.end(), std::less_equal<>()));
  EXPECT_EQ(sizes[0], 1);
  for (Index tile : {8, 16, 32, 64, 128, 256}) {
    for (Index size : {tile - 1, tile, tile + 1})
      EXPECT_TRUE(std::binary_search(sizes.begin(), sizes.end(), size)) << size;
  }
}

// Catches: poison in a counted token, an ignored token without any, a wrong share of ignored tokens, and a
// label equal to ignore_index by accident.
TEST(IgnoredLabels, PoisonIsIgnoredAndNothingElseIs) {
  for (double share : {0.0, 0.6, 1.0}) {
    for (std::int64_t ignore_index :
         {std::int64_t{-100}, std::int64_t{-1}, std::int64_t{3}, std::int64_t{1} << 40}) {
      CaseSpec spec = spec_of("ignored-labels");
      spec.tokens = 500;
      spec.strength = share;
      spec.options.ignore_index = ignore_index;
      spec.teacher_hidden = 7;
      const Case c = make_case(spec);
      const Problem problem = c.problem();
      const Index counted = count_tokens(problem, c.options);
      EXPECT_LE(std::abs(static_cast<double>(counted) - 500 * (1 - share)),
                6.5 * std::sqrt(500 * share * (1 - share)));
      Index poisoned = 0, infinite = 0;
      for (Index t = 0; t < spec.tokens; ++t) {
        bool finite = true, has_infinity = false;
        for (const MatrixView& input : {problem.student_input, problem.teacher_input}) {
          for (Index j = 0; j < input.cols; ++j) {
            finite = finite && std::isfinite(input(t, j));
            has_infinity = has_infinity || std::isinf(input(t, j));
          }
        }
        EXPECT_TRUE(finite || !is_counted(problem, c.options, t));
        poisoned += !finite;
        infinite += has_infinity;
      }
      // Three of four ignored tokens are poisoned, one with infinity: 6.5 standard deviations either side.
      const double ignored = 500 - static_cast<double>(counted);
      EXPECT_LE(std::abs(static_cast<double>(poisoned) - 0.75 * ignored), 6.5 * std::sqrt(ignored * 3 / 16));
      EXPECT_LE(std::abs(static_cast<double>(infinite) - 0.25 * ignored), 6.5 * std::sqrt(ignored * 3 / 16));
      const double loss = *linear_jsd<double>(problem, c.options).loss;
      EXPECT_TRUE(share == 1 ? loss == 0 : std::isfinite(loss));
    }
  }
}

// Catches: a teacher row that is not the student row plus a constant; kinds of tokens that do not occur.
TEST(EqualRows, DifferByAConstant) {
  CaseSpec base = spec_of("equal-rows");
  base.tokens = 60;
  base.with_bias = true;
  for (const CaseSpec& spec : with_hidden_sizes(base)) {
    const Case c = make_case(spec);
    const Problem problem = c.problem();
    int shifted = 0, flat = 0;
    double largest_error = 0;
    for (Index t = 0; t < spec.tokens; ++t) {
      const Logit x0 = student_logit(problem, t, 0), y0 = teacher_logit(problem, t, 0);
      const double shift = y0.value - x0.value;
      bool without_signal = true;
      for (Index v = 0; v < spec.vocab; ++v) {
        const Logit x = student_logit(problem, t, v), y = teacher_logit(problem, t, v);
        // The products are exact; only the sums of this check round.
        const double error = x.error + y.error + x0.error + y0.error;
        ASSERT_LE(std::abs(y.value - x.value - shift), error) << about(spec);
        largest_error = std::max(largest_error, error);
        without_signal = without_signal && x.value == (*problem.student_bias)(v);
      }
      shifted += std::abs(shift) > 0.1;
      flat += without_signal;
    }
    // A third of the tokens is flat: 20, standard deviation 3.7. Two thirds are shifted, where that is
    // possible.
    EXPECT_GE(flat, 3) << about(spec);
    EXPECT_TRUE(teacher_hidden(spec) == 1 ? shifted == 0 : shifted > 20) << about(spec) << shifted;
    // With log ratios within ±2e, where e bounds the logits' errors, |p − q|₁ <= 2e and
    // D <= (KL(p‖q) + KL(q‖p)) / 4 = Σ (p − q) log(p/q) / 4 <= e².
    EXPECT_LE(*linear_jsd<double>(problem, c.options).loss, largest_error * largest_error) << about(spec);
  }
}

// Catches: a kind of token that does not occur; NaN or infinity where they are not meant to be; logits that
// fp32 could hold after all.
TEST(Overflow, HoldsEveryKindOfToken) {
  for (DType dtype : all_dtypes) {
    CaseSpec spec = spec_of("overflow");
    spec.tokens = 100;
    spec.teacher_hidden = 5;
    spec.dtype = dtype;
    const Case c = make_case(spec);
    const Problem problem = c.problem();
    EXPECT_TRUE(all_finite(c.student_weight) && all_finite(c.teacher_weight));
    std::set<std::string> kinds;
    const Result result = linear_jsd<double>(problem, c.options);
    const double beyond = dtype == DType::f16 ? 65504 : 0x1p128;
    for (Index t = 0; t < spec.tokens; ++t) {
      std::string kind;
      for (const MatrixView& input : {problem.student_input, problem.teacher_input}) {
        bool nan = false, infinite = false;
        for (Index j = 0; j < input.cols; ++j) {
          nan = nan || std::isnan(input(t, j));
          infinite = infinite || std::isinf(input(t, j));
        }
        kind += nan ? "nan " : infinite ? "inf " : "finite ";
      }
      double largest = 0;
      for (Index v = 0; v < spec.vocab; ++v)
        largest = std::max(largest, std::abs(student_logit(problem, t, v).value));
      if (kind == "finite finite " && largest > beyond) kind = "huge";
      kinds.insert(kind);
      const bool has_loss = kind == "finite finite " || kind == "huge";
      EXPECT_EQ(std::isfinite(result.token_loss[static_cast<std::size_t>(t)]), has_loss) << kind;
      // Ordinary: 2/sqrt(16) Σ of 15 products of deviates, and 2^-10 · 2^10 (1 + 0.5 · 4.9/8) · a deviate.
      EXPECT_TRUE(kind != "finite finite " || largest <= 0.5 * 15 * 24 + 1.4 * 4.9) << largest;
    }
    EXPECT_EQ(kinds, (std::set<std::string>{"finite finite ", "nan finite ", "inf finite ", "finite nan ",
                                            "finite inf ", "huge"}))
        << name(dtype);
    EXPECT_TRUE(std::isnan(*result.loss));
  }
}

// Catches: signs that do not cancel exactly.
TEST(AntiCorrelated, TeacherIsTheNegatedStudent) {
  CaseSpec base = spec_of("anti-correlated");
  base.with_bias = true;
  base.strength = 5;
  for (const CaseSpec& spec : with_hidden_sizes(base)) {
    const Case c = make_case(spec);
    const Problem problem = c.problem();
    double square = 0;
    for (Index t = 0; t < spec.tokens; ++t) {
      for (Index v = 0; v < spec.vocab; ++v) {
        const double x = student_logit(problem, t, v).value;
        ASSERT_EQ(teacher_logit(problem, t, v).value, -x) << about(spec);
        square += x * x / static_cast<double>(spec.tokens * spec.vocab);
      }
    }
    EXPECT_GT(square, 1) << about(spec);
  }
}

}  // namespace
}  // namespace fljsd
