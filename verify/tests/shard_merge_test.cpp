// SPDX-License-Identifier: Apache-2.0
// A vocabulary cut over ranks, without ranks: the reference's states and the CUDA stages' records of 1 to 64
// ragged shards, put together again, against the undivided row and against the judge.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "reference/real.h"
#include "reference/shards.h"
#include "verify/cases/recipe.h"
#include "verify/judge/verdict.h"
#include "verify/tests/chernoff_rows.h"
#include "verify/tests/shard_rows.h"

namespace fljsd::testing {
namespace {

using chernoff_tests::all_families;
using chernoff_tests::RowPair;

const Index counts[] = {1, 2, 3, 7, 16, 64};

std::vector<std::size_t> shuffled(std::size_t size, std::uint64_t seed) {
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (seed != 0) std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  return order;
}

// Fault: entries lost or counted twice at a shard's end.
RC_GTEST_PROP(Shards, CoverTheVocabularyOnce, ()) {
  const Index vocab = *rc::gen::resize(100, rc::gen::inRange<Index>(1, 1000));
  const Index count = *rc::gen::resize(100, rc::gen::inRange<Index>(1, 65));
  const std::vector<Shard> shards =
      cut_vocabulary(vocab, count, *rc::gen::elementOf(std::vector<std::uint64_t>{0, 1, 99}));
  RC_ASSERT(static_cast<Index>(shards.size()) == count);
  Index next = 0;
  for (const Shard& s : shards) {
    RC_ASSERT(s.first == next);
    RC_ASSERT(s.size >= 0);
    next += s.size;
  }
  RC_ASSERT(next == vocab);
}

// Fault: a merge whose phases or scale factors depend on the order or on the cut. At 100 digits nothing but
// the algebra is left: fewer than 10^4 operations, on angles of up to 10^4 turns, lose at most 8 digits and D
// is of order 1; 1e-85 leaves seven more.
TEST(ReferenceShards, AnyCutInAnyOrderGivesTheUndividedDivergence) {
  constexpr int last = 4;
  const Quadrature rule = make_quadrature(WeightKind::exact_at_equality, 0.3, last, 20);
  for (const RowPair& row : all_families(40, 5)) {
    const std::vector<double> x = row.x64(), y = row.y64();
    const auto part = [](const std::vector<double>& of, const Shard& s) {
      return std::span(of).subspan(static_cast<std::size_t>(s.first), static_cast<std::size_t>(s.size));
    };
    const auto whole = apply_rule(chernoff_tests::swept<Real100>(x, y, last, 20).sums(), rule);
    for (const Index count : counts) {
      std::vector<ChernoffState<Real100>> states;
      for (const Shard& s : cut_vocabulary(40, count, static_cast<std::uint64_t>(count)))
        states.push_back(chernoff_tests::swept<Real100>(part(x, s), part(y, s), last, 20));
      for (const std::uint64_t seed : {0u, 1u}) {
        const auto merged = apply_rule(
            merge_in_order(ChernoffState<Real100>(last, 20), states, shuffled(states.size(), seed)).sums(),
            rule);
        for (const auto& [got, want] :
             {std::pair{merged.divergence, whole.divergence}, std::pair{merged.kappa, whole.kappa}}) {
          const bool close = abs(got - want) <= 1e-85 * (1 + abs(want));
          EXPECT_TRUE(close) << row.family << ": " << count << " shards, order " << seed << ": "
                             << pivot(Real100(got - want));
        }
      }
    }
  }
}

// The same for the sums of beta = 0 and 1; differences of up to 2·10^4 nats lose four digits more.
TEST(ReferenceShards, AnyCutInAnyOrderGivesTheUndividedKl) {
  for (const RowPair& row : all_families(40, 6)) {
    const std::vector<double> a = row.x64(), b = row.y64();
    const auto swept = [&](const Shard& s) {
      KlState<Real100> state;
      for (Index v = s.first; v < s.first + s.size; ++v) {
        const auto i = static_cast<std::size_t>(v);
        state.add(Real100(a[i]), Real100(b[i]));
      }
      return state;
    };
    const Real100 whole = finalise(swept({0, 40}).sums()).kl;
    for (const Index count : counts) {
      std::vector<KlState<Real100>> states;
      for (const Shard& s : cut_vocabulary(40, count, static_cast<std::uint64_t>(count) + 7))
        states.push_back(swept(s));
      for (const std::uint64_t seed : {0u, 1u}) {
        const Real100 merged =
            finalise(merge_in_order(KlState<Real100>(), states, shuffled(states.size(), seed)).sums()).kl;
        const bool close = isinf(whole) ? merged == whole : abs(merged - whole) <= 1e-80 * (1 + abs(whole));
        EXPECT_TRUE(close) << row.family << ": " << count << " shards, order " << seed;
      }
    }
  }
}

DeviceRow device_row_of(const RowPair& row) {
  return part_of({row.x, row.y}, {0, static_cast<Index>(row.x.size())});
}

// The records of a row's shards.
template <class Shards>
std::vector<ShardRecord> records_of(const Shards& how, const RowPair& row, Index count, std::uint64_t seed) {
  std::vector<ShardRecord> records;
  for (const Shard& s : cut_vocabulary(static_cast<Index>(row.x.size()), count, seed))
    records.push_back(s.size == 0 ? how.empty() : how.sweep(part_of({row.x, row.y}, s)));
  return records;
}

// Fault: a shard's reference, phase or compensation lost in the merge. Both are the same rule applied to sums
// of the same terms: each side's sums err by what one_pass_moments.cuh states, 1.5e-6 in D, so they differ by
// at most twice that.
TEST(DeviceShards, GiveTheUndividedDivergence) {
  for (const double beta : {0.01, 0.5, 0.9}) {
    const cu::Mixture m = cu::make_mixture(beta, 1.0);
    const MixtureShards how(m, beta);
    for (const RowPair& row : all_families(200, 3)) {
      const double whole = static_cast<double>(how.finish(how.sweep(device_row_of(row))).first);
      for (const Index count : counts) {
        const double got = static_cast<double>(how.finish(how.merge(records_of(how, row, count, 11))).first);
        EXPECT_LE(std::abs(got - whole), 3e-6)
            << row.family << ": beta " << beta << ", " << count << " shards";
      }
    }
  }
}

// Error of a one-pass KL(f‖g) in nats: exponents and differences are rounded to 2^-23 of themselves, 2^x to
// 2^-22; a term is f·difference. `row`: raw logits of f and g.
double kl_error(const std::vector<float>& f, const std::vector<float>& g) {
  const auto top = std::max_element(f.begin(), f.end()) - f.begin();
  const double top_f = static_cast<double>(f[static_cast<std::size_t>(top)]);
  const double pivot_g = static_cast<double>(g[static_cast<std::size_t>(top)]);
  const double top_g = static_cast<double>(*std::max_element(g.begin(), g.end()));
  double sum_f = 0, sum_g = 0, error_f = 0, error_mean = 0, error_g = 0;
  for (std::size_t v = 0; v < f.size(); ++v) {
    const double a = static_cast<double>(f[v]) - top_f, b = static_cast<double>(g[v]) - top_g;
    const double d = static_cast<double>(g[v]) - pivot_g, p = std::exp(a), q = std::exp(b);
    if (p > 0) {
      sum_f += p;
      error_f += p * (std::abs(a) + 4);
      error_mean += p * ((std::abs(a) + 4) * std::abs(a - d) + std::abs(a) + std::abs(d));
    }
    if (q > 0) sum_g += q, error_g += q * (std::abs(b) + 4);
  }
  return 0x1p-23 * (error_mean / sum_f + (1 + error_mean / sum_f) * error_f / sum_f + error_g / sum_g);
}

// The same at the endpoints: each side errs by kl_error() at most, and by the rounding of the result.
template <cu::Divergence kind>
void expect_undivided_kl() {
  const cu::Mixture m = cu::make_mixture(kind == cu::Divergence::teacher_kl ? 0 : 1, 1.0);
  const EndpointShards<kind> how(m);
  for (const RowPair& row : all_families(200, 4)) {
    const double whole = static_cast<double>(how.finish(how.sweep(device_row_of(row))).first);
    const double error = kind == cu::Divergence::teacher_kl ? kl_error(row.y, row.x) : kl_error(row.x, row.y);
    for (const Index count : counts) {
      const double got = static_cast<double>(how.finish(how.merge(records_of(how, row, count, 12))).first);
      const bool close =
          std::isinf(whole) ? got == whole : std::abs(got - whole) <= 2 * error + 0x1p-23 * std::abs(whole);
      EXPECT_TRUE(close) << row.family << ": " << count << " shards: " << got << ", not " << whole << " ± "
                         << 2 * error;
    }
  }
}
TEST(DeviceShards, GiveTheUndividedKlOfTheTeacher) {
  expect_undivided_kl<cu::Divergence::teacher_kl>();
}
TEST(DeviceShards, GiveTheUndividedKlOfTheStudent) {
  expect_undivided_kl<cu::Divergence::student_kl>();
}

// Fault: a rank that merges in its own order, or counts its own record otherwise. Merged in double and kept
// to 2^-48, 64 records in another order move a sum by 2·64·2^-48 of the terms' moduli; D is a sum over 23
// frequencies of weights below 2 in total, turned by angles whose derivative is 23·0.14: below 2^-38. Then D
// is rounded to fp32.
TEST(DeviceShards, TheOrderOfTheShardsHardlyMatters) {
  const cu::Mixture m = cu::make_mixture(0.5, 1.0);
  const MixtureShards how(m, 0.5);
  for (const RowPair& row : all_families(200, 3)) {
    const std::vector<ShardRecord> records = records_of(how, row, 64, 11);
    const double want = static_cast<double>(how.finish(how.merge(records)).first);
    for (const std::uint64_t seed : {1u, 2u}) {
      std::vector<ShardRecord> other;
      for (const std::size_t s : shuffled(records.size(), seed)) other.push_back(records[s]);
      const double got = static_cast<double>(how.finish(how.merge(other)).first);
      EXPECT_LE(std::abs(got - want), 0x1p-38 + 0x1p-23 * want) << row.family;
    }
  }
}

// Fault: a shard in which no entry exists (past valid_vocab) that still has a say, e.g. by its reference.
template <class Shards>
void expect_empty_shards_change_no_bit(const Shards& how) {
  for (const RowPair& row : all_families(50, 8)) {
    const std::vector<ShardRecord> records = records_of(how, row, 5, 0);
    const ShardRecord want = how.merge(records);
    for (std::size_t at = 0; at <= records.size(); ++at) {
      std::vector<ShardRecord> more = records;
      more.insert(more.begin() + static_cast<std::ptrdiff_t>(at), how.empty());
      const ShardRecord got = how.merge(more);
      for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
            << row.family << ": float " << i << " with an empty shard at " << at;
      }
    }
  }
}
TEST(DeviceShards, EmptyOnesChangeNoBit) {
  expect_empty_shards_change_no_bit(MixtureShards(cu::make_mixture(0.3, 1.0), 0.3));
  expect_empty_shards_change_no_bit(EndpointShards<cu::Divergence::teacher_kl>(cu::make_mixture(0, 1.0)));
  expect_empty_shards_change_no_bit(EndpointShards<cu::Divergence::student_kl>(cu::make_mixture(1, 1.0)));
}

// Fault: a token of which no shard has an entry that gets a loss: all-ignored and impossible rows are the
// only ones without sums, and the latter are NaN.
TEST(DeviceShards, NoEntryAnywhereIsNoDistribution) {
  const MixtureShards how(cu::make_mixture(0.3, 1.0), 0.3);
  const auto [loss, constants] = how.finish(how.merge({how.empty(), how.empty()}));
  EXPECT_TRUE(std::isnan(loss));
  EXPECT_TRUE(std::isnan(constants.constant));
}

// What the stages promise nothing about (cuda/fljsd.h), and what they do not take.
bool is_beyond_the_stages(const Case& c) {
  const Problem p = c.problem();
  bool f64 = (p.student_bias && p.student_bias->dtype == DType::f64) ||
             (p.teacher_bias && p.teacher_bias->dtype == DType::f64);
  for (const MatrixView& m : {p.student_input, p.student_weight, p.teacher_input, p.teacher_weight})
    f64 = f64 || m.dtype == DType::f64;
  if (f64) return true;
  Problem products = p;
  products.student_bias.reset();
  products.teacher_bias.reset();
  Options scaled = c.options;
  scaled.temperature = std::min(c.options.temperature, 1.0);
  for (Index t = 0; t < p.tokens(); ++t) {
    if (!is_counted(p, c.options, t)) continue;
    const LogitRows<double> rows = logits<double>(products, scaled, t);
    for (const auto* row : {&rows.student, &rows.teacher}) {
      for (const double x : *row)
        if (std::isfinite(x) && std::abs(x) > 0x1p125) return true;
    }
  }
  return false;
}

void expect_kept(const Recipe& recipe, Index count, std::uint64_t seed) {
  const Case c = make_case(recipe);
  if (is_beyond_the_stages(c)) return;
  const Wanted wanted{true, true, c.student_bias.has_value(), std::nullopt};
  const Truth truth{linear_jsd<double>(c.problem(), c.options, wanted), false};
  const Result result =
      sharded_result(c.problem(), c.options, cut_vocabulary(c.problem().vocab(), count, seed));
  const Verdict verdict = judge(c, truth, wanted, result, AccuracyClass::fp32_logits, DType::f32);
  EXPECT_TRUE(verdict.pass()) << count << " shards: " << to_text(recipe) << '\n' << format(verdict);
}

// Fault: anything in losses or gradients that cutting the vocabulary breaks, whatever the family, beta,
// biases, labels, valid_vocab and formats: judged by the budgets of the class that the stage declares.
TEST(DeviceShards, KeepTheirClassOnRandomRecipes) {
  const Index many[] = {1, 2, 3, 5, 8, 17, 64};
  for (std::uint64_t seed = 1; seed <= 280 && !HasFailure(); ++seed)
    expect_kept(random_recipe(seed), many[seed % 7], seed);
}

// Fault: valid_vocab taken as the shard's own, a rank past it that adds something, ignored tokens in the
// count.
TEST(DeviceShards, KeepTheirClassAtTheEdges) {
  for (const char* text : {
           "family=padded-vocab tokens=5 hidden=8 vocab=40 seed=1 valid_vocab=3",
           "family=padded-vocab tokens=5 hidden=8 vocab=40 seed=1 valid_vocab=21 beta=0.1 bias=both",
           "family=padded-vocab tokens=5 hidden=8 vocab=40 seed=2 valid_vocab=1 beta=0",
           "family=kaiming tokens=6 hidden=8 vocab=33 seed=3 ignored=100",
           "family=kaiming tokens=6 hidden=8 vocab=33 seed=3 ignored=50 poisoned=1 beta=1",
           "family=disjoint tokens=4 hidden=8 vocab=33 seed=4 beta=0.9 bias=both",
           "family=peaked tokens=4 hidden=8 vocab=33 seed=5 beta=1 temperature=0.7 reduction=sum",
           "family=published tokens=4 hidden=64 vocab=65 seed=6 dtype=f16",
       }) {
    for (const Index count : {2, 4, 40}) {
      expect_kept(parse_recipe(text), count, 0);
      expect_kept(parse_recipe(text), count, 9);
    }
  }
}

}  // namespace
}  // namespace fljsd::testing
