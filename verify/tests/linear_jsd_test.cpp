// SPDX-License-Identifier: Apache-2.0
// The whole pipeline: its semantics in every tier, its gradients against finite differences, and the float64
// tier within a bound of the exact one.
#include "reference/linear_jsd.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <sched.h>

#include "reference/linear_jsd_detail.h"
#include "reference/parallel.h"
#include "verify/cases/layout.h"
#include "verify/tests/definition.h"
#include "verify/tests/row_bounds.h"
#include "verify/tests/small_problem.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double u = row_bounds::u;

// All results of a tier, as doubles near them.
template <class Real>
Result rounded(const BasicResult<Real>& result) {
  const auto round = [](const std::vector<Real>& values) {
    std::vector<double> out;
    for (const Real& value : values) out.push_back(pivot(value));
    return out;
  };
  const auto round_matrix = [](const RowMajorMatrix<Real>& m) {
    RowMajorMatrix<double> out(m.rows(), m.cols());
    for (Index r = 0; r < m.rows(); ++r)
      for (Index c = 0; c < m.cols(); ++c) out(r, c) = pivot(m(r, c));
    return out;
  };
  Result out;
  if (result.loss) out.loss = pivot(*result.loss);
  out.counted = result.counted;
  out.token_loss = round(result.token_loss);
  out.student_input_grad = round_matrix(result.student_input_grad);
  out.student_weight_grad = round_matrix(result.student_weight_grad);
  out.student_bias_grad = round(result.student_bias_grad);
  return out;
}

// Each tier must have the same semantics.
template <class Real>
class LinearJsdTier : public testing::Test {
 protected:
  static Result run(const Case& c, const Wanted& wanted = Wanted::all()) {
    return rounded(linear_jsd<Real>(c.problem(), c.options, wanted));
  }
};
using Tiers = testing::Types<double, Real100, Interval<40>>;
TYPED_TEST_SUITE(LinearJsdTier, Tiers);

bool same(double a, double b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b));
}
void expect_same(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(same(a[i], b[i])) << i << ": " << a[i] << " " << b[i];
}
void expect_same(const RowMajorMatrix<double>& a, const RowMajorMatrix<double>& b) {
  ASSERT_EQ(a.rows(), b.rows());
  ASSERT_EQ(a.cols(), b.cols());
  for (Index i = 0; i < a.size(); ++i) EXPECT_TRUE(same(a.data()[i], b.data()[i])) << i;
}
void expect_same(const Result& a, const Result& b) {
  EXPECT_EQ(a.loss.has_value(), b.loss.has_value());
  if (a.loss && b.loss) {
    EXPECT_TRUE(same(*a.loss, *b.loss)) << *a.loss << " " << *b.loss;
  }
  EXPECT_EQ(a.counted, b.counted);
  expect_same(a.token_loss, b.token_loss);
  expect_same(a.student_input_grad, b.student_input_grad);
  expect_same(a.student_weight_grad, b.student_weight_grad);
  expect_same(a.student_bias_grad, b.student_bias_grad);
}

// Catches: an ignored token read, counted in the mean, or given a gradient that is merely small.
TYPED_TEST(LinearJsdTier, IgnoredTokensAreAsIfTheyWereNotThere) {
  for (Reduction reduction : {Reduction::batchmean, Reduction::sum, Reduction::none}) {
    Numbers n = numbers(1);
    n.options.reduction = reduction;
    n.options.ignore_index = 7;
    n.labels = {0, 7, -100, 7};
    for (Index t : {1, 3}) {
      std::fill_n(n.student_input.begin() + t * n.student_hidden, n.student_hidden, nan);
      std::fill_n(n.teacher_input.begin() + t * n.teacher_hidden, n.teacher_hidden, infinity);
    }
    const Result result = this->run(n.make());

    Numbers without = n;
    without.tokens = 2;
    without.labels.reset();
    const auto keep_rows_0_and_2 = [](const std::vector<double>& values, Index cols) {
      std::vector<double> kept(values.begin(), values.begin() + cols);
      kept.insert(kept.end(), values.begin() + 2 * cols, values.begin() + 3 * cols);
      return kept;
    };
    without.student_input = keep_rows_0_and_2(n.student_input, n.student_hidden);
    without.teacher_input = keep_rows_0_and_2(n.teacher_input, n.teacher_hidden);
    const Result expected = this->run(without.make());

    EXPECT_EQ(result.counted, 2);
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(result.loss.has_value(), reduction != Reduction::none);
    expect_same(result.token_loss, {expected.token_loss[0], 0, expected.token_loss[1], 0});
    for (Index h = 0; h < n.student_hidden; ++h) {
      EXPECT_EQ(result.student_input_grad(0, h), expected.student_input_grad(0, h));
      EXPECT_TRUE(same(result.student_input_grad(1, h), 0));
      EXPECT_EQ(result.student_input_grad(2, h), expected.student_input_grad(1, h));
      EXPECT_TRUE(same(result.student_input_grad(3, h), 0));
    }
    expect_same(result.student_weight_grad, expected.student_weight_grad);
    expect_same(result.student_bias_grad, expected.student_bias_grad);
  }
}

// Catches: 0/0 of an empty mean, and gradients of the wrong shape.
TYPED_TEST(LinearJsdTier, NoTokensAndNoCountedTokensGiveZero) {
  Numbers none = numbers(2, 0), ignored = numbers(2);
  ignored.labels = std::vector<std::int64_t>(4, -100);
  for (const Numbers& n : {none, ignored}) {
    const Result result = this->run(n.make());
    EXPECT_EQ(result.counted, 0);
    EXPECT_TRUE(same(result.loss.value_or(nan), 0));
    expect_same(result.token_loss, std::vector<double>(static_cast<std::size_t>(n.tokens)));
    expect_same(result.student_input_grad, RowMajorMatrix<double>::Zero(n.tokens, n.student_hidden));
    expect_same(result.student_weight_grad, RowMajorMatrix<double>::Zero(n.vocab, n.student_hidden));
    expect_same(result.student_bias_grad, std::vector<double>(6));
  }
}

// Catches: a NaN that is lost (0·NaN skipped), that spreads to other tokens, or that reaches rows of entries
// which do not exist.
TYPED_TEST(LinearJsdTier, TokensWithoutADistributionAreNan) {
  for (double poison : {nan, infinity}) {
    Numbers n = numbers(3);
    n.options.valid_vocab = 5;
    n.student_input[3] = poison;  // of token 1
    const Result result = this->run(n.make());
    EXPECT_TRUE(std::isnan(result.loss.value_or(0)));
    for (Index t = 0; t < n.tokens; ++t) {
      EXPECT_EQ(std::isnan(result.token_loss[static_cast<std::size_t>(t)]), t == 1);
      for (Index h = 0; h < n.student_hidden; ++h)
        EXPECT_EQ(std::isnan(result.student_input_grad(t, h)), t == 1);
    }
    for (Index v = 0; v < n.vocab; ++v) {
      for (Index h = 0; h < n.student_hidden; ++h) {
        EXPECT_EQ(std::isnan(result.student_weight_grad(v, h)), v < 5);
        if (v >= 5) {
          EXPECT_TRUE(same(result.student_weight_grad(v, h), 0));
        }
      }
      EXPECT_EQ(std::isnan(result.student_bias_grad[static_cast<std::size_t>(v)]), v < 5);
    }
    EXPECT_TRUE(same(result.student_bias_grad[5], 0));
  }
  Numbers nothing = numbers(3);
  nothing.teacher_bias.assign(6, -infinity);  // all −inf
  EXPECT_TRUE(std::isnan(this->run(nothing.make()).loss.value_or(0)));
}

// Catches: entries at or past valid_vocab that are read, normalised over, or given a gradient.
TYPED_TEST(LinearJsdTier, EntriesPastTheValidVocabularyDoNotExist) {
  Numbers n = numbers(4);
  n.options.valid_vocab = 4;
  for (Index v : {4, 5}) {
    std::fill_n(n.student_weight.begin() + v * n.student_hidden, n.student_hidden, nan);
    std::fill_n(n.teacher_weight.begin() + v * n.teacher_hidden, n.teacher_hidden, infinity);
    n.student_bias[static_cast<std::size_t>(v)] = n.teacher_bias[static_cast<std::size_t>(v)] = nan;
  }
  const Result result = this->run(n.make());
  Numbers cut = n;
  cut.vocab = 4;
  cut.options.valid_vocab.reset();
  cut.student_weight.resize(12);
  cut.teacher_weight.resize(8);
  cut.student_bias.resize(4);
  cut.teacher_bias.resize(4);
  const Result expected = this->run(cut.make());
  EXPECT_EQ(result.loss, expected.loss);
  expect_same(result.student_input_grad, expected.student_input_grad);
  for (Index v = 0; v < n.vocab; ++v) {
    for (Index h = 0; h < n.student_hidden; ++h)
      EXPECT_TRUE(same(result.student_weight_grad(v, h), v < 4 ? expected.student_weight_grad(v, h) : 0));
    const auto at = static_cast<std::size_t>(v);
    EXPECT_TRUE(same(result.student_bias_grad[at], v < 4 ? expected.student_bias_grad[at] : 0));
  }
}

// Catches: 0·log 0, or a removed entry that keeps a little probability.
TYPED_TEST(LinearJsdTier, ABiasOfMinusInfinityRemovesAnEntry) {
  Numbers n = numbers(5);
  n.student_bias[2] = n.teacher_bias[2] = -infinity;
  const Result result = this->run(n.make());
  Numbers cut = n;
  cut.vocab = 5;
  const auto erase = [](std::vector<double>& values, Index first, Index count) {
    values.erase(values.begin() + first, values.begin() + first + count);
  };
  erase(cut.student_weight, 2 * 3, 3);
  erase(cut.teacher_weight, 2 * 2, 2);
  erase(cut.student_bias, 2, 1);
  erase(cut.teacher_bias, 2, 1);
  const Result expected = this->run(cut.make());
  // The same sums in the same order, but for the position of the entry.
  EXPECT_NEAR(*result.loss, *expected.loss, 8 * u * *expected.loss);
  for (Index h = 0; h < 3; ++h) EXPECT_EQ(result.student_weight_grad(2, h), 0);
  EXPECT_EQ(result.student_bias_grad[2], 0);

  // Impossible for the student only: finite for 0 ≤ beta < 1 but KL(p‖q) = inf at beta = 0.
  n.teacher_bias[2] = 0;
  for (double beta : {0.0, 0.3, 1.0}) {
    n.options.beta = beta;
    const double loss = *this->run(n.make()).loss;
    EXPECT_EQ(std::isinf(loss), beta == 0) << beta;
    EXPECT_GT(loss, 0);
  }
}

// Catches: the reduction factor on the value but not the gradient, or the ignored tokens in it.
TYPED_TEST(LinearJsdTier, ReductionsDifferByTheirFactor) {
  Numbers n = numbers(6);
  n.labels = {1, -100, 1, 1};
  n.options.reduction = Reduction::sum;
  const Result sum = this->run(n.make());
  n.options.reduction = Reduction::none;
  const Result none = this->run(n.make());
  n.options.reduction = Reduction::batchmean;
  const Result mean = this->run(n.make());
  EXPECT_FALSE(none.loss.has_value());
  EXPECT_NEAR(*sum.loss, none.token_loss[0] + none.token_loss[2] + none.token_loss[3], 4 * u * *sum.loss);
  EXPECT_NEAR(*mean.loss * 3, *sum.loss, 4 * u * *sum.loss);
  expect_same(sum.token_loss, none.token_loss);
  expect_same(sum.token_loss, mean.token_loss);
  expect_same(sum.student_input_grad, none.student_input_grad);
  expect_same(sum.student_weight_grad, none.student_weight_grad);
  const auto expect_thirds = [](double mean_value, double sum_value) {
    EXPECT_NEAR(mean_value * 3, sum_value, 4 * u * std::abs(sum_value));
  };
  for (Index i = 0; i < mean.student_input_grad.size(); ++i)
    expect_thirds(mean.student_input_grad.data()[i], sum.student_input_grad.data()[i]);
  for (Index i = 0; i < mean.student_weight_grad.size(); ++i)
    expect_thirds(mean.student_weight_grad.data()[i], sum.student_weight_grad.data()[i]);
  for (std::size_t i = 0; i < 6; ++i) expect_thirds(mean.student_bias_grad[i], sum.student_bias_grad[i]);
}

// Catches: gradients computed, or memory taken, that nobody asked for; rows in the wrong order.
TYPED_TEST(LinearJsdTier, OnlyWhatIsWantedIsReturned) {
  Numbers n = numbers(7);
  n.student_bias.clear();  // a bias gradient is allowed without a bias
  n.options.valid_vocab = 5;
  const Result all = this->run(n.make());
  const Result nothing = this->run(n.make(), {});
  EXPECT_EQ(nothing.loss, all.loss);
  EXPECT_EQ(nothing.student_input_grad.size() + nothing.student_weight_grad.size(), 0);
  EXPECT_TRUE(nothing.student_bias_grad.empty());

  Wanted wanted;
  wanted.student_weight_grad = true;
  wanted.weight_grad_rows = {4, 0, 5, 4};
  const Result some = this->run(n.make(), wanted);
  ASSERT_EQ(some.student_weight_grad.rows(), 4);
  EXPECT_EQ(some.student_input_grad.size(), 0);
  for (Index r = 0; r < 4; ++r) {
    const Index v = (*wanted.weight_grad_rows)[static_cast<std::size_t>(r)];
    for (Index h = 0; h < 3; ++h) {
      EXPECT_NEAR(some.student_weight_grad(r, h), all.student_weight_grad(v, h),
                  16 * u);  // blocks may differ
      if (v == 5) {
        EXPECT_TRUE(same(some.student_weight_grad(r, h), 0));
      }
    }
  }
  for (Index bad : {-1, 6}) {
    wanted.weight_grad_rows = {0, bad};
    EXPECT_THROW(this->run(n.make(), wanted), InvalidProblem);
  }
}

// Catches: the temperature not applied to the bias, or applied twice; a transposed product.
TYPED_TEST(LinearJsdTier, LogitsAreDotPlusBiasOverTemperature) {
  using Real = TypeParam;
  Numbers n = numbers(8);
  n.options.temperature = 0.5;  // halves are exact, and so is everything below
  n.options.valid_vocab = 5;
  const Case c = n.make();
  for (Index t = 0; t < n.tokens; ++t) {
    const LogitRows<Real> rows = logits<Real>(c.problem(), c.options, t);
    ASSERT_EQ(rows.student.size(), 5u);
    ASSERT_EQ(rows.teacher.size(), 5u);
    for (Index v = 0; v < 5; ++v) {
      const auto at = static_cast<std::size_t>(v);
      double x = n.student_bias[at], y = n.teacher_bias[at];
      for (Index h = 0; h < 3; ++h)
        x += n.student_input[static_cast<std::size_t>(t * 3 + h)] *
             n.student_weight[static_cast<std::size_t>(v * 3 + h)];
      for (Index h = 0; h < 2; ++h)
        y += n.teacher_input[static_cast<std::size_t>(t * 2 + h)] *
             n.teacher_weight[static_cast<std::size_t>(v * 2 + h)];
      EXPECT_EQ(pivot(rows.student[at]), x / 0.5);
      EXPECT_EQ(pivot(rows.teacher[at]), y / 0.5);
    }
  }
  EXPECT_THROW(logits<Real>(c.problem(), c.options, 4), InvalidProblem);
  EXPECT_THROW(logits<Real>(c.problem(), c.options, -1), InvalidProblem);
}

// Catches: reading past a row, or assuming rows are contiguous or aligned.
TYPED_TEST(LinearJsdTier, StridesAndAlignmentChangeNothing) {
  Numbers n = numbers(9);
  n.student_input_type = DType::bf16;
  n.student_weight_type = DType::f16;
  n.teacher_input_type = DType::f32;
  const Case c = n.make();
  const Result plain = this->run(c);
  for (std::size_t misalignment : {0, 1, 2, 7}) {
    const LaidOutCase elsewhere(c, {5, misalignment});
    expect_same(plain, rounded(linear_jsd<TypeParam>(elsewhere.problem(), c.options, Wanted::all())));
  }
}

// Infinite weights are outside of what is judged, but not of what may crash.
TYPED_TEST(LinearJsdTier, InfiniteWeightsDoNotCrash) {
  for (double beta : {0.0, 0.5, 1.0}) {
    Numbers n = numbers(10);
    n.options.beta = beta;
    n.student_weight[4] = infinity;
    n.teacher_weight[5] = -infinity;
    this->run(n.make());
  }
}

// --- Gradients against finite differences of the definition
// ---------------------------------------------------

using Wide = std::vector<Real100>;

// The numbers of a problem in 100 digits, so that they can be moved by 1e-30.
struct WideNumbers {
  Wide student_input, student_weight, student_bias;
};

// The loss by definition: dot products, softmax, mixture, logarithms.
Real100 loss_by_definition(const Numbers& n, const WideNumbers& w) {
  const Index valid = n.options.valid_vocab.value_or(n.vocab);
  Real100 sum = 0;
  Index counted = 0;
  for (Index t = 0; t < n.tokens; ++t) {
    if (n.labels && (*n.labels)[static_cast<std::size_t>(t)] == n.options.ignore_index) continue;
    ++counted;
    Wide x, y;
    for (Index v = 0; v < valid; ++v) {
      const auto at = static_cast<std::size_t>(v);
      Real100 student = w.student_bias[at], teacher = n.teacher_bias.empty() ? 0 : n.teacher_bias[at];
      for (Index h = 0; h < n.student_hidden; ++h) {
        student += w.student_input[static_cast<std::size_t>(t * n.student_hidden + h)] *
                   w.student_weight[static_cast<std::size_t>(v * n.student_hidden + h)];
      }
      for (Index h = 0; h < n.teacher_hidden; ++h) {
        teacher += Real100(n.teacher_input[static_cast<std::size_t>(t * n.teacher_hidden + h)]) *
                   n.teacher_weight[static_cast<std::size_t>(v * n.teacher_hidden + h)];
      }
      x.push_back(student / n.options.temperature);
      y.push_back(teacher / n.options.temperature);
    }
    sum += definition::divergence(x, y, n.options.beta);
  }
  return n.options.reduction == Reduction::batchmean && counted > 0 ? Real100(sum / counted) : sum;
}

// Catches: any wrong factor, sign, index or formula of a gradient.
//
// Central differences with step h = 1e-30 have the error h²/6·|D'''| from truncation and
// 1e-98·|D|·(operations)/h from rounding. Logits change by at most 2/T ≤ 3 times a parameter's change and are
// within 8/T·3 of each other, so D''' is below 1e6 and D below 1e3: together less than 1e-53 + 1e-62.
RC_GTEST_PROP(LinearJsd, GradientsAreTheDerivativesOfTheDefinition, (std::uint64_t seed)) {
  Numbers n = random_numbers(seed);
  const Real100 step = 1e-30, tolerance = 1e-50;
  for (double beta : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    n.options.beta = beta;
    const Case c = n.make();
    const BasicResult<Real100> result = linear_jsd<Real100>(c.problem(), c.options, Wanted::all());
    WideNumbers w{
        definition::widen(n.student_input), definition::widen(n.student_weight),
        n.student_bias.empty() ? Wide(static_cast<std::size_t>(n.vocab)) : definition::widen(n.student_bias)};
    if (result.loss) RC_ASSERT(abs(Real100(*result.loss - loss_by_definition(n, w))) <= 1e-90);
    const auto agrees = [&](Real100& parameter, const Real100& gradient) {
      const Real100 value = parameter;
      parameter = value + step;
      const Real100 above = loss_by_definition(n, w);
      parameter = value - step;
      const Real100 below = loss_by_definition(n, w);
      parameter = value;
      return abs(Real100((above - below) / (2 * step) - gradient)) <= tolerance;
    };
    for (Index i = 0; i < result.student_input_grad.size(); ++i)
      RC_ASSERT(agrees(w.student_input[static_cast<std::size_t>(i)], result.student_input_grad.data()[i]));
    for (Index i = 0; i < result.student_weight_grad.size(); ++i)
      RC_ASSERT(agrees(w.student_weight[static_cast<std::size_t>(i)], result.student_weight_grad.data()[i]));
    for (std::size_t v = 0; v < result.student_bias_grad.size(); ++v)
      RC_ASSERT(agrees(w.student_bias[v], result.student_bias_grad[v]));
  }
}

// --- The float64 tier
// -----------------------------------------------------------------------------------------

double gamma(Index n) {
  return static_cast<double>(n) * u / (1 - static_cast<double>(n) * u);
}

// Largest error of the logits of a token that the float64 tier may make, one model (see
// linear_jsd_float64.cpp).
double logit_error(const detail::Model& model, const Options& options, Index token, Index valid) {
  double worst = 0;
  for (Index v = 0; v < valid; ++v) {
    double size = model.bias && std::isfinite((*model.bias)(v)) ? std::abs((*model.bias)(v)) : 0;
    for (Index h = 0; h < model.input.cols; ++h) size += std::abs(model.input(token, h) * model.weight(v, h));
    worst = std::max(worst, size);
  }
  return gamma(model.input.cols + 2) * worst / options.temperature;
}

// Whether every loss and gradient of `actual` is within its bound of the truth.
void expect_within_bounds(const Case& c, const Result& actual, const BasicResult<Real100>& truth) {
  const Problem problem = c.problem();
  const Index valid = valid_vocab(problem, c.options), hidden = problem.student_input.cols;
  const double factor =
      1 / c.options.temperature / static_cast<double>(reduction_divisor(c.options, truth.counted));
  const auto distance = [](double a, const Real100& b) { return std::abs(pivot(Real100(a - b))); };

  double loss_bound = 0, losses = 0;
  RowMajorMatrix<double> weight_bound = RowMajorMatrix<double>::Zero(problem.vocab(), hidden);
  std::vector<double> bias_bound(static_cast<std::size_t>(problem.vocab()));
  for (Index t : detail::counted_tokens(problem, c.options)) {
    const LogitRows<Real100> exact = logits<Real100>(problem, c.options, t);
    std::vector<double> x, y;
    for (std::size_t v = 0; v < exact.student.size(); ++v) {
      x.push_back(pivot(exact.student[v]));
      y.push_back(pivot(exact.teacher[v]));
    }
    const double logit_errors = logit_error(detail::student(problem), c.options, t, valid) +
                                logit_error(detail::teacher(problem), c.options, t, valid);
    const auto at = static_cast<std::size_t>(t);
    const double loss = pivot(truth.token_loss[at]);
    const double bound = row_bounds::loss_bound(x, y, c.options.beta, loss, logit_errors);
    EXPECT_LE(distance(actual.token_loss[at], truth.token_loss[at]), bound) << "token " << t;
    loss_bound += bound;
    losses += loss;

    const std::vector<double> dlogits_bound = row_bounds::gradient_bounds(x, y, c.options.beta, logit_errors);
    // Summing products and scaling costs gamma_{n+4} of the magnitudes, n = vocab or tokens. A bound of
    // dlogits_v is at least 80u·|dlogits_v|, because its eps is at least 80u and its scale at least
    // |dlogits_v|; so for n ≤ 76 both together are below twice the bound.
    EXPECT_LE(std::max(valid, problem.tokens()), 76);
    for (Index h = 0; h < hidden; ++h) {
      double input_bound = 0;
      for (Index v = 0; v < valid; ++v) {
        const double product_bound = 2 * dlogits_bound[static_cast<std::size_t>(v)];
        input_bound += product_bound * std::abs(problem.student_weight(v, h));
        weight_bound(v, h) += product_bound * std::abs(problem.student_input(t, h)) * factor;
        if (h == 0) bias_bound[static_cast<std::size_t>(v)] += product_bound * factor;
      }
      EXPECT_LE(distance(actual.student_input_grad(t, h), truth.student_input_grad(t, h)),
                input_bound * factor);
    }
  }
  if (truth.loss) {
    const double divisor = static_cast<double>(reduction_divisor(c.options, truth.counted));
    EXPECT_LE(distance(*actual.loss, *truth.loss), (loss_bound + 4 * u * losses) / divisor);
  }
  for (Index v = 0; v < problem.vocab(); ++v) {
    for (Index h = 0; h < hidden; ++h)
      EXPECT_LE(distance(actual.student_weight_grad(v, h), truth.student_weight_grad(v, h)),
                weight_bound(v, h));
    const auto at = static_cast<std::size_t>(v);
    EXPECT_LE(distance(actual.student_bias_grad[at], truth.student_bias_grad[at]), bias_bound[at]);
  }
}

// Catches: a block that is skipped or counted twice, a ragged last block, an offset into the wrong block;
// and, for sizes of one block, a gradient or loss that is off by more than rounding.
RC_GTEST_PROP(LinearJsd, Float64IsWithinItsBoundForAnyBlocks, (std::uint64_t seed)) {
  std::mt19937_64 random(seed);
  const auto below = [&](Index n) { return static_cast<Index>(random() % static_cast<std::uint64_t>(n)); };
  Numbers n = random_numbers(random());
  const Numbers larger = numbers(random(), 1 + below(9), 1 + below(40), 1 + below(20), 1 + below(20));
  if (below(2)) {
    n = larger;
    for (double& x : n.student_input) x = x * 4 + 1e-3 * static_cast<double>(below(1000));
  }
  n.options.beta = std::vector{0.0, 0.1, 0.5, 0.9, 1.0}[static_cast<std::size_t>(below(5))];
  const Case c = n.make();
  const BasicResult<Real100> truth = linear_jsd<Real100>(c.problem(), c.options, Wanted::all());
  expect_within_bounds(c, linear_jsd<double>(c.problem(), c.options, Wanted::all()), truth);
  for (const detail::BlockSizes& blocks :
       {detail::BlockSizes{1, 1, 1}, {2, 3, 2}, {3, 16, 5}, {100, 7, 100}, {4, 100, 8}}) {
    expect_within_bounds(c, detail::linear_jsd_blocked(c.problem(), c.options, Wanted::all(), blocks), truth);
  }
  RC_ASSERT(!testing::Test::HasFailure());
}

// Catches: sums whose order depends on which thread finishes first. (thread_count() follows the processors
// that this process may run on.)
TEST(LinearJsd, Float64DoesNotDependOnTheNumberOfThreads) {
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  Numbers n = numbers(11, 9, 300, 40, 30);
  n.options.temperature = 0.3;
  const Case c = n.make();
  const detail::BlockSizes blocks{4, 16, 8};
  const Result with_all = detail::linear_jsd_blocked(c.problem(), c.options, Wanted::all(), blocks);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(thread_count(), 1);
  const Result with_one = detail::linear_jsd_blocked(c.problem(), c.options, Wanted::all(), blocks);
  ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
  expect_same(with_all, with_one);
}

// Catches: working memory that grows with the problem.
TEST(LinearJsd, DefaultBlocksKeepWithinTheirMemory) {
  for (Index tokens : {0, 1, 7, 1024, 100000}) {
    for (Index vocab : {1, 128256, 10000000}) {
      const detail::BlockSizes blocks = detail::default_blocks(tokens, vocab);
      EXPECT_GE(blocks.tokens, 1);
      if (blocks.tokens > 1) {
        EXPECT_LE(2 * blocks.tokens * vocab * Index{sizeof(double)}, Index{640} << 20);
      }
      EXPECT_LE(blocks.vocab * blocks.hidden * Index{sizeof(double)}, Index{4} << 20);
    }
  }
}

// Catches: bad input let through to the arithmetic.
TEST(LinearJsd, RefusesWhatValidateRefuses) {
  Numbers n = numbers(12);
  n.options.beta = 2;
  const Case c = n.make();
  EXPECT_THROW(linear_jsd<double>(c.problem(), c.options), InvalidProblem);
  EXPECT_THROW(linear_jsd<Real100>(c.problem(), c.options), InvalidProblem);
  EXPECT_THROW(logits<double>(c.problem(), c.options, 0), InvalidProblem);
}

}  // namespace
}  // namespace fljsd
