// SPDX-License-Identifier: Apache-2.0
// The row arithmetic of the CUDA stages on the host, judged as the stages are: by the budget of the class
// that they declare, on random recipes of all input families.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include <gtest/gtest.h>

#include "verify/tests/device_rows.h"

#include "verify/cases/recipe.h"
#include "verify/judge/verdict.h"

namespace fljsd::testing {
namespace {

// FLJSD_DEVICE_ROWS_RECIPES: how many.
std::uint64_t recipes() {
  const char* text = std::getenv("FLJSD_DEVICE_ROWS_RECIPES");
  return text == nullptr ? 600 : std::strtoull(text, nullptr, 10);
}

// FLJSD_DEVICE_ROWS_SEED: of the first one.
std::uint64_t first_recipe() {
  const char* text = std::getenv("FLJSD_DEVICE_ROWS_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

Verdict judged(DeviceStage stage, const Recipe& recipe) {
  const Case c = make_case(recipe);
  const Wanted wanted{true, true, c.student_bias.has_value(), std::nullopt};
  const Truth truth{linear_jsd<double>(c.problem(), c.options, wanted), false};
  return judge(c, truth, wanted, device_result(stage, c.problem(), c.options), AccuracyClass::fp32_logits,
               DType::f32);
}

bool has_f64(const Case& c) {
  const Problem p = c.problem();
  for (const MatrixView& m : {p.student_input, p.student_weight, p.teacher_input, p.teacher_weight})
    if (m.dtype == DType::f64) return true;
  return (p.student_bias && p.student_bias->dtype == DType::f64) ||
         (p.teacher_bias && p.teacher_bias->dtype == DType::f64);
}

// What the stages promise nothing about (cuda/fljsd.h).
bool has_enormous_logits(const Case& c) {
  const Problem p = c.problem();
  for (Index t = 0; t < p.tokens(); ++t) {
    if (!is_counted(p, c.options, t)) continue;
    for (const auto& [input, weight] :
         {std::pair{p.student_input, p.student_weight}, std::pair{p.teacher_input, p.teacher_weight}}) {
      for (Index v = 0; v < valid_vocab(p, c.options); ++v) {
        double product = 0;
        for (Index h = 0; h < input.cols; ++h) product += input(t, h) * weight(v, h);
        if (std::isfinite(product) && std::abs(product) / std::min(c.options.temperature, 1.0) > 0x1p125)
          return true;
      }
    }
  }
  return false;
}

void expect_kept(DeviceStage stage, const std::string& text) {
  const Verdict verdict = judged(stage, parse_recipe(text));
  EXPECT_TRUE(verdict.pass()) << (stage == DeviceStage::stored ? "stored: " : "one pass: ") << text << '\n'
                              << format(verdict);
}

TEST(DeviceRows, KeepTheirClassOnRandomRecipes) {
  int failures = 0;
  for (std::uint64_t seed = first_recipe(); seed < first_recipe() + recipes() && failures < 12; ++seed) {
    const Recipe recipe = random_recipe(seed);
    const Case c = make_case(recipe);
    if (has_f64(c) || has_enormous_logits(c)) continue;
    for (const DeviceStage stage : {DeviceStage::stored, DeviceStage::one_pass}) {
      const Verdict verdict = judged(stage, recipe);
      if (verdict.pass()) continue;
      ++failures;
      ADD_FAILURE() << (stage == DeviceStage::stored ? "stored: " : "one pass: ") << to_text(recipe) << '\n'
                    << format(verdict);
    }
  }
}

// A certificate that convicts right statistics, which would be repaired for milliseconds a token.
TEST(DeviceRows, RightStatisticsAreCertifiedOnRandomRecipes) {
  std::size_t rows = 0;
  for (std::uint64_t seed = first_recipe(); seed < first_recipe() + recipes(); ++seed) {
    const Recipe recipe = random_recipe(seed);
    const Case c = make_case(recipe);
    if (c.options.beta == 0 || c.options.beta == 1 || has_f64(c) || has_enormous_logits(c)) continue;
    const Problem p = c.problem();
    const cu::Mixture m = cu::make_mixture(c.options.beta, c.options.temperature);
    const Index valid = valid_vocab(p, c.options);
    for (Index t = 0; t < p.tokens(); ++t) {
      if (!is_counted(p, c.options, t)) continue;
      const DeviceRow row{fp32_logits(p.student_input, p.student_weight, p.student_bias, t, valid),
                          fp32_logits(p.teacher_input, p.teacher_weight, p.teacher_bias, t, valid)};
      const RowOutcome outcome = device_row(DeviceStage::one_pass, row, m, c.options.beta, 1);
      if (std::isnan(outcome.loss)) continue;
      ++rows;
      EXPECT_LE(std::abs(outcome.sum), outcome.sum_tolerance) << to_text(recipe) << ", token " << t;
    }
  }
  EXPECT_GT(rows, recipes());
}

// What a search found on a device, by cause.
TEST(DeviceRows, KeepTheirClassWhereTheyOnceDidNot) {
  for (const DeviceStage stage : {DeviceStage::stored, DeviceStage::one_pass}) {
    for (const char* text : {
             // beta = 1 and models that hardly overlap: KL(q‖p) was rounded by itself.
             "family=disjoint tokens=1 hidden=1 vocab=2 seed=55904 beta=1",
             "family=disjoint tokens=1 hidden=1 vocab=2 seed=338783 beta=1",
             "family=disjoint tokens=1 hidden=1 vocab=2 seed=295891 beta=1",
             "family=disjoint tokens=76 hidden=3 vocab=17 seed=285577 dtype=f16 bias=student beta=1 "
             "temperature=3.1608807799226573 reduction=sum",
             "family=disjoint tokens=1 hidden=1 vocab=2 seed=295891",
             "family=disjoint tokens=1 hidden=1 vocab=65 seed=238887",
             "family=disjoint tokens=1 hidden=1 vocab=2 seed=470851 temperature=2",
             "family=disjoint tokens=1 hidden=1 vocab=2 seed=285577",
             // fp16 at beta = 1: a gradient of thousands, times 64, was infinite.
             "family=kaiming tokens=2 hidden=4 vocab=5 seed=3 dtype=f16 beta=1 teacher_weight[0]=12000",
             // Logits whose rounding exceeds the range of an exponent.
             "family=published tokens=1 hidden=1 vocab=1 seed=0 teacher_input[0]=1.4123288431433875e+20",
             "family=published tokens=1 hidden=1 vocab=1 seed=0 beta=0 "
             "student_weight[0]=-6.271302689250889e+24",
             "family=overflow tokens=2 hidden=1 vocab=1 seed=4 dtype=f16 beta=0",
             "family=published tokens=1 hidden=1 vocab=1 seed=0 bias=both "
             "teacher_bias[0]=3.3895313892515355e+38",
             "family=published tokens=1 hidden=1 vocab=2 seed=0 bias=both "
             "student_bias[0]=3.3895313892515355e+38",
             "family=offset tokens=1 hidden=1 vocab=1 seed=0 teacher_bias[0]=3.386706919782613e+18",
             "family=offset tokens=1 hidden=1 vocab=1 seed=0 teacher_bias[0]=-3.3895313892515355e+38",
             "family=published tokens=1 hidden=1 vocab=1 seed=0 bias=teacher "
             "teacher_bias[0]=2.322168557862912e+16",
             // One row of the weight a million times the others: its share in the mean row cost more than the
             // mean row gave back.
             "family=kaiming tokens=1 hidden=1 vocab=2 seed=6 student_weight[0]=-2097152",
             "family=near-identical tokens=3 hidden=11 vocab=11 seed=839417 beta=0 "
             "temperature=3.438328816380346 "
             "reduction=sum teacher_weight[37]=26880 student_weight[113]=-2097152",
             "family=disjoint tokens=10 hidden=17 vocab=67 seed=855481 bias=both beta=1 "
             "teacher_weight[1344]=153838.0313724413",
             "family=padded-vocab tokens=1 hidden=1 vocab=4 seed=1 beta=0 valid_vocab=4 "
             "student_weight[51]=4096",
         }) {
      expect_kept(stage, text);
    }
  }
}

// A row of `vocab` multiples of 1/8 in [-20, 20], filled up with −inf to a multiple of eight.
std::vector<float> grid_row(std::uint64_t seed, std::size_t vocab, float offset = 0) {
  std::mt19937_64 generator(seed);
  std::vector<float> row((vocab + 7) / 8 * 8, -cu::infinity());
  for (std::size_t v = 0; v < vocab; ++v)
    row[v] = offset + static_cast<float>(std::uniform_int_distribution<int>(-160, 160)(generator)) / 8;
  return row;
}

// Roundings that differ between the models, or between a top entry and the rest, show where everything should
// vanish. In one pass D and kappa are sums of 23 cosines in double: bounds as in stages_gpu_test.cpp.
TEST(DeviceRows, EqualModelsHaveNeitherLossNorGradient) {
  for (const double beta : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    for (const std::size_t vocab : {1u, 7u, 8u, 100u, 1000u}) {
      DeviceRow row{grid_row(vocab, vocab), {}};
      row.y = row.x;
      const cu::Mixture m = cu::make_mixture(beta, 0.7);
      for (const DeviceStage stage : {DeviceStage::stored, DeviceStage::one_pass}) {
        const bool exact = stage == DeviceStage::stored || beta == 0 || beta == 1;
        const double bound = exact ? 0 : 0x1p-48;
        const RowOutcome outcome = device_row(stage, row, m, beta, 1);
        EXPECT_LE(std::abs(static_cast<double>(outcome.loss)), bound) << beta << ' ' << vocab;
        for (const float g : outcome.dlogits) EXPECT_LE(std::abs(static_cast<double>(g)), bound) << beta;
      }
    }
  }
}

// A loss below 0, whose square root is NaN. For beta so near to 1 what is left of a row's terms is rounding,
// of either sign; a row without a distribution is NaN still.
TEST(DeviceRows, NoLossIsNegative) {
  std::mt19937_64 generator(11);
  for (const double beta : {1 - 0x1p-20, 1 - 0x1p-30, 1 - 0x1p-53}) {
    const cu::Mixture m = cu::make_mixture(beta, 1.0);
    for (int i = 0; i < 200; ++i) {
      std::normal_distribution<float> normal(0, i % 2 == 0 ? 1.0f : 10.0f);
      DeviceRow row;
      for (int v = 0; v < 40; ++v) row.x.push_back(normal(generator)), row.y.push_back(normal(generator));
      EXPECT_TRUE(device_row(DeviceStage::stored, row, m, beta, 1).loss >= 0) << beta << ' ' << i;
    }
    const DeviceRow nothing{std::vector<float>(8, -cu::infinity()), std::vector<float>(8, 1.0f)};
    EXPECT_TRUE(std::isnan(device_row(DeviceStage::stored, nothing, m, beta, 1).loss)) << beta;
  }
}

// A list of rounding residuals that overflows, or a bound of the gradient that is none: rows from flat to
// saturated, nearly equal and unrelated models.
TEST(DeviceRows, FewEntriesAreLargeBesideTheBoundOfTheRow) {
  std::mt19937_64 generator(5);
  std::size_t listed = 0;
  for (const double beta : {0.0, 0.01, 0.3, 0.5, 0.9, 0.999}) {
    const cu::Mixture m = cu::make_mixture(beta, 1.0);
    for (const double spread : {0.01, 1.0, 5.0, 11.0, 30.0}) {
      for (const double apart : {0.001, 0.1, 1.0}) {
        for (const std::size_t vocab : {2u, 16u, 40u, 3000u}) {
          std::normal_distribution<double> normal;
          DeviceRow row;
          for (std::size_t v = 0; v < (vocab + 7) / 8 * 8; ++v) {
            const double x = normal(generator), y = (1 - apart) * x + apart * normal(generator);
            row.x.push_back(v < vocab ? static_cast<float>(spread * x) : -cu::infinity());
            row.y.push_back(v < vocab ? static_cast<float>(spread * y) : -cu::infinity());
          }
          for (const DeviceStage stage : {DeviceStage::stored, DeviceStage::one_pass}) {
            const RowOutcome outcome = device_row(stage, row, m, beta, 1);
            double norm = 0;
            std::size_t large = 0;
            for (const float g : outcome.dlogits) {
              norm += std::abs(static_cast<double>(g));
              large += std::abs(g) >= outcome.large ? 1 : 0;
            }
            // The factor of residual_threshold(): 1 % for roundings.
            EXPECT_LE(norm, 16 * static_cast<double>(outcome.large)) << beta << ' ' << spread << ' ' << apart;
            EXPECT_LE(large, 16u);
            listed += large;
          }
        }
      }
    }
  }
  EXPECT_GT(listed, 400u);  // in 720 rows
}

// Residuals of other entries, or of none. Two entries have nearly all of the gradient, and the sum of what
// rounding takes from a row, which a weight with a large mean multiplies, comes from the others alone.
TEST(DeviceRows, LargeEntriesAreNotRounded) {
  for (const DeviceStage stage : {DeviceStage::stored, DeviceStage::one_pass}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      std::mt19937_64 generator(seed);
      std::normal_distribution<double> normal;
      DeviceRow row;
      for (int v = 0; v < 1000; ++v) {
        const bool top = v % 600 == 7;
        row.x.push_back(static_cast<float>((top ? 10 : 0) + 0.1 * normal(generator)));
        row.y.push_back(static_cast<float>((top ? 10 + v / 600 : 0) + 0.1 * normal(generator)));
      }
      const RowOutcome outcome = device_row(stage, row, cu::make_mixture(0.5, 1.0), 0.5, 1);
      const std::vector<Index> entries = residual_entries(outcome);
      EXPECT_EQ(entries, (std::vector<Index>{7, 607}));
      double given_back = 0, square = 0;
      for (std::size_t v = 0; v < outcome.dlogits.size(); ++v) {
        const double g = outcome.dlogits[v], rounded = round_to(DType::bf16, g);
        const bool large = std::ranges::find(entries, static_cast<Index>(v)) != entries.end();
        given_back += large ? 0 : rounded - g;
        square += large ? 0 : g * g;
      }
      // The others' roundings: each within 2^-8 of its entry, of either sign; 6 standard deviations of a sum.
      EXPECT_LE(std::abs(given_back), 6 * 0x1p-8 * std::sqrt(square)) << seed;
    }
  }
}

// 2^20 + k/8 is a float, so an offset of 2^20 leaves every difference as it is: what multiplies logits before
// it subtracts loses 2^-4 here. The stored rows then give the same bits.
TEST(DeviceRows, AnOffsetChangesNoBit) {
  for (const double beta : {0.0, 0.3, 0.5, 1.0}) {
    const cu::Mixture m = cu::make_mixture(beta, 1.0);
    const DeviceRow plain{grid_row(1, 500), grid_row(2, 500)};
    const DeviceRow moved{grid_row(1, 500, 0x1p20f), grid_row(2, 500, 0x1p20f)};
    const RowOutcome want = device_row(DeviceStage::stored, plain, m, beta, 1);
    const RowOutcome got = device_row(DeviceStage::stored, moved, m, beta, 1);
    EXPECT_EQ(got.loss, want.loss) << beta;
    EXPECT_EQ(got.dlogits, want.dlogits) << beta;
  }
}

}  // namespace
}  // namespace fljsd::testing
