// SPDX-License-Identifier: Apache-2.0
// The rounding models as whole pipelines: within a derived bound of the truth, and the options mean what they
// mean in linear_jsd, except where the published implementation that is modelled is known to differ.
//
// The bound of a token, for 0 < beta < 1. q, p, M, ell_v = log(q_v/M_v), K = KL(q‖M), h(beta) in nats.
//
//   Logits are off by at most e, hence log q and log p by 2e and by what the log-softmax itself rounds;
//   together at most eta. A formula may use log q, log p and d that are not quite consistent; d is then off
//   by 2·eta. D as the formulas write it is a function of log q, log p and d with
//     log-mixture          Σ|dD/dlog p| + Σ|dD/dlog q| <= h(beta) + 1/e
//     softplus             Σ|dD/dlog| <= log 2,   Σ|dD/ds| <= 1
//     difference           Σ|dD/dlog q| = D <= h(beta),   Σ|dD/dd| = Σ beta·p·|log(p/M)| <= h(beta) + 1/e
//   because p·log(p/M) is at most p·log(1/beta) where p > M, and p·log(M/p) at most M/e where p < M. The
//   derivatives grow by e^{2·eta} at most on the way, so D moves by at most 3·eta·e^{2·eta}.
//   Evaluating: every term, of size at most range + log vocab + 2 in total, passes through at most
//   C = 4·(vocab/1024 + 12) + 40 roundings (range: the spread of a row of logits).
//   Gradient of x_v, (1−beta)·q_v·(ell_v − K): q_v is off by a factor e^{±2·eta}, ell_v by 4·eta, and K by
//     dK = (e^{2·eta} − 1)·(log(1/(1−beta)) + 1/e) + 4·eta·e^{2·eta}/(1−beta) + evaluation.
//   Products: gamma_n of the sums of absolute values; each storage adds its unit roundoff and half its
//   smallest number.
// At the endpoints the same with D = Σ p·d or Σ q·(−d), whose derivatives are bounded by Σ p·|d| + 1.
#include "reference/rounding.h"

#include <cmath>
#include <limits>
#include <map>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "reference/chernoff.h"
#include "reference/divergence.h"
#include "reference/linear_jsd.h"
#include "verify/cases/families.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

double unit(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::fp32 ? 0x1p-24 : 0x1p-53;
}
double unit(Storage storage) {
  return storage == Storage::float64 ? 0x1p-53 : 0x1p-24;  // of the computation before it is stored
}

// Of n roundings in a row: (1 + u)^n − 1.
double growth(double u, double n) {
  return std::expm1(n * std::log1p(u));
}

// The error of storing a value of at most this size.
double store_error(DType dtype, double size) {
  const Format format = format_of(dtype);
  return unit_roundoff(dtype) * size + std::ldexp(1.0, format.min_exponent - format.precision);
}

// Upper bounds on |model − truth|, elementwise.
struct Bound {
  double loss = 0;
  std::vector<double> token_loss;
  RowMajorMatrix<double> student_input_grad, student_weight_grad;
  std::vector<double> student_bias_grad;
  double range = 0;  // the largest spread of a row of logits
};

// Largest error of the stored logits of one model and token, |logit| <= size.
double logit_error(const Pipeline& p, DType dtype, double size, Index hidden) {
  const double u = unit(p.logits) + unit(p.scaled_logits);  // the steps may be in different arithmetic
  double error = growth(u, static_cast<double>(hidden) + 8) * size;
  for (Storage storage : {p.logits, p.scaled_logits})
    error += store_error(dtype_of(storage, dtype), size + error);
  return error;
}

// Σ|input|·|weight| + |bias|, over the temperature: the largest over the vocabulary.
double logit_size(const MatrixView& input, const MatrixView& weight, const std::optional<VectorView>& bias,
                  Index token, Index vocab, double temperature) {
  double largest = 0;
  for (Index v = 0; v < vocab; ++v) {
    double size = bias ? std::abs((*bias)(v)) : 0;
    for (Index k = 0; k < input.cols; ++k) size += std::abs(input(token, k) * weight(v, k));
    largest = std::max(largest, size / std::min(1.0, temperature));
  }
  return largest;
}

// Of the one-pass statistics. Only at the endpoints it depends on the range; elsewhere it is slow to compute,
// and asked for again and again.
OnePassErrorBound one_pass_bound(double beta, Index vocab, double range) {
  if (beta == 0 || beta == 1) return one_pass_error_bound(OnePassPlan({.beta = beta}), vocab, range);
  static std::map<double, OnePassPlan> plans;
  static std::map<std::pair<double, Index>, OnePassErrorBound> bounds;
  const OnePassPlan& plan = plans.try_emplace(beta, OnePassConfig{.beta = beta}).first->second;
  const auto found = bounds.find({beta, vocab});
  if (found != bounds.end()) return found->second;
  return bounds[{beta, vocab}] = one_pass_error_bound(plan, vocab);
}

// The exact logits of every counted token; empty for the others.
std::vector<LogitRows<double>> exact_logits(const Problem& problem, const Options& options) {
  std::vector<LogitRows<double>> rows(static_cast<std::size_t>(problem.tokens()));
  for (Index t = 0; t < problem.tokens(); ++t)
    if (is_counted(problem, options, t))
      rows[static_cast<std::size_t>(t)] = logits<double>(problem, options, t);
  return rows;
}

Bound model_bound(const Problem& problem, const Options& options,
                  const std::vector<LogitRows<double>>& all_rows, const Result& truth, const Pipeline& p) {
  const Index tokens = problem.tokens(), vocab = valid_vocab(problem, options),
              hidden = problem.student_input.cols;
  const double beta = options.beta, rest = 1 - beta;
  const double factor = 1 / static_cast<double>(reduction_divisor(options, truth.counted));
  const double log_vocab = std::log(static_cast<double>(vocab));
  const DType student = common_dtype(problem.student_input.dtype, problem.student_weight.dtype);
  const DType teacher = common_dtype(problem.teacher_input.dtype, problem.teacher_weight.dtype);
  const bool one_pass = p.formula == Formula::one_pass;
  const double u = one_pass ? 0x1p-24 : unit(p.arithmetic);

  Bound bound;
  bound.token_loss.assign(static_cast<std::size_t>(tokens), 0);
  // Per token and entry: the size of dlogits and of its error.
  RowMajorMatrix<double> size = RowMajorMatrix<double>::Zero(tokens, vocab), error = size;
  double loss_error = 0, loss_size = 0;
  for (Index t = 0; t < tokens; ++t) {
    if (!is_counted(problem, options, t)) continue;
    const LogitRows<double>& rows = all_rows[static_cast<std::size_t>(t)];
    std::vector<double> log_larger = rows.student, d = rows.teacher;
    normalise(std::span(log_larger), std::span(d));
    const auto spread = [](const std::vector<double>& row) {
      return *std::max_element(row.begin(), row.end()) - *std::min_element(row.begin(), row.end());
    };
    const double e = std::max(logit_error(p, student,
                                          logit_size(problem.student_input, problem.student_weight,
                                                     problem.student_bias, t, vocab, options.temperature),
                                          hidden),
                              logit_error(p, teacher,
                                          logit_size(problem.teacher_input, problem.teacher_weight,
                                                     problem.teacher_bias, t, vocab, options.temperature),
                                          problem.teacher_input.cols));
    const double range = std::max(spread(rows.student), spread(rows.teacher)) + 2 * e,
                 extent = range + log_vocab + 2;
    bound.range = std::max(bound.range, range);
    const double blocks = static_cast<double>(vocab) / 1024;
    const double softmax_unit = one_pass ? 0x1p-24 : unit(p.log_softmax);
    double eta = 2 * e + softmax_unit * (4 * range + 4 * log_vocab + blocks + 30);
    eta += std::max(store_error(dtype_of(p.log_softmax, student), extent),
                    store_error(dtype_of(p.log_softmax, teacher), extent));
    const double a = std::exp(2 * eta);
    const double evaluation = u * (4 * (blocks + 12) + 40) * extent;

    double moved = 1;  // what multiplies 3·eta·e^{2·eta}
    if (beta == 0 || beta == 1) {
      for (std::size_t v = 0; v < d.size(); ++v) {
        const LogRatio<double> ratio{log_larger[v], d[v]};
        moved += (beta == 0 ? ratio.p() : ratio.q()) * std::abs(d[v]);
      }
    }
    double token_error = 3 * eta * a * moved + evaluation * moved;
    double constant_error = beta == 1 ? token_error
                                      : std::expm1(2 * eta) * (-std::log(rest) + 1 / std::exp(1.0)) +
                                            4 * eta * a / rest + evaluation;
    if (one_pass) {
      const auto own = one_pass_bound(beta, vocab, range);
      token_error += own.divergence;
      constant_error += beta == 0 ? 0 : own.scaled_student_kl / (beta == 1 ? 1 : rest);
    }
    bound.token_loss[static_cast<std::size_t>(t)] = token_error;
    loss_error += token_error * factor;
    loss_size += (std::abs(truth.token_loss[static_cast<std::size_t>(t)]) + token_error) * factor;

    const double kl = beta == 0 ? 0 : student_kl<double>(log_larger, d, beta);
    const double autograd_sum =
        beta == 1 ? moved + 1 : -std::log(rest) + 1 / std::exp(1.0) + (beta == 0 ? 1 : 0);
    for (Index v = 0; v < vocab; ++v) {
      const LogRatio<double> ratio{log_larger[static_cast<std::size_t>(v)], d[static_cast<std::size_t>(v)]};
      const double q = ratio.q(), weight = beta == 1 ? 1 : rest;
      const double g = std::abs(gradient_term(ratio, beta, kl));
      double ell = beta == 0 ? 0 : std::abs(log_q_over_m(ratio, beta)), delta = 0, before_softmax = 0;
      if (beta == 0) {
        delta = (std::expm1(4 * eta) + evaluation) * (q + ratio.p());
        before_softmax = ratio.p() * a;
      } else {
        delta = weight * q * (std::expm1(2 * eta) * (ell + kl) + a * (4 * eta + constant_error + evaluation));
        before_softmax = weight * q * a * (ell + 1);
      }
      if (p.formula == Formula::log_mixture_autograd) {
        const DType dtype = dtype_of(p.log_softmax_grad, student);
        delta += store_error(dtype, before_softmax) +
                 q * a *
                     (unit_roundoff(dtype) * weight * a * autograd_sum +
                      static_cast<double>(vocab) * store_error(dtype, 0) / factor);
      }
      double value = g * factor, value_error = delta * factor;
      value_error += store_error(dtype_of(p.scaled_logits_grad, student), value + value_error);
      value /= options.temperature;
      value_error = value_error / options.temperature + 4 * u * (value + value_error / options.temperature);
      value_error += store_error(dtype_of(p.dlogits, student), value + value_error);
      size(t, v) = value;
      error(t, v) = value_error;
    }
  }
  const double counted = static_cast<double>(truth.counted);
  bound.loss = loss_error + unit(p.arithmetic) * (counted + 3) * loss_size;
  bound.loss += store_error(dtype_of(p.loss, problem.student_input.dtype), loss_size + bound.loss);

  const auto absolute = [](const MatrixView& m, Index rows) {
    RowMajorMatrix<double> out(rows, m.cols);
    for (Index r = 0; r < rows; ++r)
      for (Index c = 0; c < m.cols; ++c) out(r, c) = std::isfinite(m(r, c)) ? std::abs(m(r, c)) : 0;
    return out;
  };
  const double sum_unit = unit(p.accumulation);
  const auto finish = [&](const RowMajorMatrix<double>& moved_part, const RowMajorMatrix<double>& sizes,
                          double relative, DType own) {
    RowMajorMatrix<double> result = moved_part + relative * (sizes + moved_part);
    const DType dtype = dtype_of(p.gradients, own);
    return RowMajorMatrix<double>(
        result.binaryExpr(sizes, [&](double b, double s) { return b + store_error(dtype, s + b); }));
  };
  const RowMajorMatrix<double> weight = absolute(problem.student_weight, vocab);
  bound.student_input_grad =
      finish(error.lazyProduct(weight), size.lazyProduct(weight),
             growth(sum_unit, static_cast<double>(vocab) + 3), problem.student_input.dtype);

  double token_growth = growth(sum_unit, static_cast<double>(tokens) + 3), token_tiny = 0;
  if (p.chunking == Chunking::by_sizes) {
    const Index chunk = chunk_tokens(tokens, vocab, hidden);
    const double roundings = 2 * static_cast<double>((tokens + chunk - 1) / chunk);
    const DType dtype = problem.student_weight.dtype;
    token_growth = (1 + token_growth) * (1 + growth(unit_roundoff(dtype), roundings)) *
                       (1 + growth(sum_unit, roundings)) -
                   1;
    token_tiny = roundings * store_error(dtype, 0) * 2;
  }
  const RowMajorMatrix<double> input = absolute(problem.student_input, tokens);
  const auto tiny = [&](RowMajorMatrix<double> m) { return RowMajorMatrix<double>(m.array() + token_tiny); };
  bound.student_weight_grad =
      tiny(finish(error.transpose().lazyProduct(input), size.transpose().lazyProduct(input), token_growth,
                  problem.student_weight.dtype));
  const RowMajorMatrix<double> ones = RowMajorMatrix<double>::Ones(tokens, 1);
  const RowMajorMatrix<double> bias =
      tiny(finish(error.transpose().lazyProduct(ones), size.transpose().lazyProduct(ones), token_growth,
                  problem.student_bias ? problem.student_bias->dtype : problem.student_weight.dtype));
  bound.student_bias_grad.assign(bias.data(), bias.data() + bias.size());
  return bound;
}

CaseSpec random_spec() {
  CaseSpec spec;
  spec.family = *rc::gen::elementOf(std::vector<int>{1, 2, 3, 4, 13, 14, 16});
  spec.tokens = *rc::gen::elementOf(std::vector<Index>{1, 2, 5, 17});
  spec.student_hidden = *rc::gen::elementOf(std::vector<Index>{1, 3, 8, 40});
  spec.teacher_hidden = *rc::gen::elementOf(std::vector<Index>{0, 5, 16});
  spec.vocab = *rc::gen::elementOf(std::vector<Index>{1, 2, 7, 33, 100});
  spec.seed = *rc::gen::arbitrary<std::uint64_t>();
  spec.dtype =
      *rc::gen::elementOf(std::vector<DType>{DType::bf16, DType::bf16, DType::f16, DType::f32, DType::f64});
  spec.with_bias = *rc::gen::arbitrary<bool>();
  spec.options.beta = *rc::gen::elementOf(std::vector<double>{0, 0.1, 0.5, 0.5, 0.9, 1});
  spec.options.temperature = *rc::gen::elementOf(std::vector<double>{1, 1, 0.7, 3});
  spec.options.reduction =
      *rc::gen::elementOf(std::vector<Reduction>{Reduction::batchmean, Reduction::sum, Reduction::none});
  if (spec.vocab > 2 && *rc::gen::arbitrary<bool>()) spec.options.valid_vocab = spec.vocab - 2;
  if (spec.family == 4) spec.teacher_hidden = 0;
  return spec;
}

struct NamedPipeline {
  std::string name;
  Pipeline pipeline;
};

std::vector<NamedPipeline> models_and_waterfalls() {
  std::vector<NamedPipeline> all;
  for (const RoundingModel& model : rounding_models()) {
    all.push_back({model.name, model.pipeline});
    const auto stages = waterfall(model.pipeline);
    for (std::size_t i = 0; i + 1 < stages.size(); ++i)
      all.push_back({std::string(model.name) + " up to " + name(all_steps()[i]), stages[i]});
  }
  return all;
}

bool is_finite(const Result& r) {
  const auto finite = [](double value) { return std::isfinite(value); };
  return std::all_of(r.token_loss.begin(), r.token_loss.end(), finite) && r.student_input_grad.allFinite() &&
         r.student_weight_grad.allFinite();
}

// Fault: any step that computes something else than it says: a wrong sign, a factor left out, beta swapped, a
// rounding coarser than stated, a chunk dropped. Both the model and linear_jsd<double>, which has the float64
// model's bound, are off. 8 models and 48 pipelines on the way to them, each with all gradients.
RC_GTEST_PROP(RoundingModels, AreWithinTheirBoundOfTheTruth, ()) {
  const CaseSpec spec = random_spec();
  const Case c = make_case(spec);
  const Problem problem = c.problem();
  const Result truth = linear_jsd<double>(problem, c.options, Wanted::all());
  RC_PRE(is_finite(truth));
  const std::vector<LogitRows<double>> rows = exact_logits(problem, c.options);
  const Bound exact = model_bound(problem, c.options, rows, truth, Pipeline{});
  const std::vector<NamedPipeline> models = models_and_waterfalls();
  std::vector<Pipeline> pipelines;
  for (const NamedPipeline& model : models) pipelines.push_back(model.pipeline);
  const std::vector<Result> results = run_pipelines(problem, c.options, Wanted::all(), pipelines);
  for (std::size_t i = 0; i < models.size(); ++i) {
    const Pipeline& p = models[i].pipeline;
    const Result& r = results[i];
    const Bound bound = model_bound(problem, c.options, rows, truth, p);
    const bool poisoned = spec.family == 13 && !p.guarded;  // NaN in ignored rows: see below
    const bool underflows = bound.range > 80 && !p.guarded;
    if (poisoned || underflows) continue;
    const auto check = [&](const char* what, double value, double true_value, double allowed) {
      if (!(std::abs(value - true_value) <= allowed)) {
        RC_LOG() << models[i].name << ": " << what << " is " << value << ", true value " << true_value
                 << ", allowed error " << allowed << ", family " << spec.family << std::endl;
        RC_FAIL("outside the bound");
      }
    };
    RC_ASSERT(r.loss.has_value() == truth.loss.has_value());
    if (truth.loss) check("loss", *r.loss, *truth.loss, bound.loss + exact.loss);
    const bool stored = c.options.reduction == Reduction::none;
    for (std::size_t t = 0; t < r.token_loss.size(); ++t) {
      double allowed = bound.token_loss[t] + exact.token_loss[t];
      if (stored)
        allowed += store_error(dtype_of(p.loss, problem.student_input.dtype), truth.token_loss[t] + allowed);
      check("token loss", r.token_loss[t], truth.token_loss[t], allowed);
    }
    RC_ASSERT(r.student_input_grad.rows() == truth.student_input_grad.rows());
    for (Index t = 0; t < truth.student_input_grad.rows(); ++t)
      for (Index k = 0; k < truth.student_input_grad.cols(); ++k)
        check("input gradient", r.student_input_grad(t, k), truth.student_input_grad(t, k),
              is_counted(problem, c.options, t)
                  ? bound.student_input_grad(t, k) + exact.student_input_grad(t, k)
                  : 0);
    const Index valid = valid_vocab(problem, c.options);
    for (Index v = 0; v < problem.vocab(); ++v) {
      for (Index k = 0; k < truth.student_weight_grad.cols(); ++k)
        check("weight gradient", r.student_weight_grad(v, k), truth.student_weight_grad(v, k),
              v < valid ? bound.student_weight_grad(v, k) + exact.student_weight_grad(v, k) : 0);
      const auto i_v = static_cast<std::size_t>(v);
      check("bias gradient", r.student_bias_grad[i_v], truth.student_bias_grad[i_v],
            v < valid ? bound.student_bias_grad[i_v] + exact.student_bias_grad[i_v] : 0);
    }
  }
}

// Equal bit for bit, NaN included.
void expect_same(const Result& a, const Result& b, const std::string& context) {
  const auto same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  ASSERT_EQ(a.loss.has_value(), b.loss.has_value()) << context;
  if (a.loss) {
    EXPECT_TRUE(same(*a.loss, *b.loss)) << context << ": loss " << *a.loss << " against " << *b.loss;
  }
  EXPECT_EQ(a.counted, b.counted) << context;
  const auto vectors = [&](const std::vector<double>& x, const std::vector<double>& y, const char* what) {
    ASSERT_EQ(x.size(), y.size()) << context << ": " << what;
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_TRUE(same(x[i], y[i])) << context << ": " << what;
  };
  const auto matrices = [&](const RowMajorMatrix<double>& x, const RowMajorMatrix<double>& y,
                            const char* what) {
    ASSERT_EQ(x.rows(), y.rows()) << context << ": " << what;
    ASSERT_EQ(x.cols(), y.cols()) << context << ": " << what;
    for (Index i = 0; i < x.size(); ++i)
      ASSERT_TRUE(same(x.data()[i], y.data()[i])) << context << ": " << what;
  };
  vectors(a.token_loss, b.token_loss, "token loss");
  vectors(a.student_bias_grad, b.student_bias_grad, "bias gradient");
  matrices(a.student_input_grad, b.student_input_grad, "input gradient");
  matrices(a.student_weight_grad, b.student_weight_grad, "weight gradient");
}

std::vector<Pipeline> model_pipelines() {
  std::vector<Pipeline> pipelines;
  for (const RoundingModel& model : rounding_models()) pipelines.push_back(model.pipeline);
  return pipelines;
}

std::vector<Result> run_models(const Case& c, const Wanted& wanted = Wanted::all()) {
  return run_pipelines(c.problem(), c.options, wanted, model_pipelines());
}

CaseSpec medium(DType dtype = DType::bf16) {
  CaseSpec spec;
  spec.family = 3;
  spec.tokens = 70;  // more than one block of tokens
  spec.student_hidden = 24;
  spec.teacher_hidden = 40;
  spec.vocab = 150;
  spec.seed = 5;
  spec.dtype = dtype;
  spec.with_bias = true;
  return spec;
}

// Fault: state shared by the pipelines of a run, or results in another order.
TEST(RunPipelines, GivesEachWhatItGetsAlone) {
  const Case c = make_case(medium());
  const std::vector<Result> together = run_models(c);
  for (std::size_t i = 0; i < together.size(); ++i) {
    const RoundingModel& model = rounding_models()[i];
    expect_same(together[i], run_pipeline(c.problem(), c.options, Wanted::all(), model.pipeline), model.name);
  }
  EXPECT_TRUE(run_pipelines(c.problem(), c.options, Wanted::all(), {}).empty());
}

// Fault: sampled rows that are other rows, or rounded differently; gradients that change what is not asked
// for.
TEST(RunPipelines, SampledWeightRowsAreThoseOfTheWholeGradient) {
  const Case c = make_case(medium());
  const std::vector<Result> whole = run_models(c);
  Wanted wanted;
  wanted.student_weight_grad = true;
  wanted.weight_grad_rows = {149, 0, 7, 7};
  const std::vector<Result> sample = run_models(c, wanted);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(sample[i].student_input_grad.size(), 0);
    EXPECT_EQ(sample[i].token_loss, whole[i].token_loss);
    ASSERT_EQ(sample[i].student_weight_grad.rows(), 4);
    for (Index r = 0; r < 4; ++r)
      EXPECT_EQ(sample[i].student_weight_grad.row(r),
                whole[i].student_weight_grad.row((*wanted.weight_grad_rows)[static_cast<std::size_t>(r)]));
  }
  wanted.weight_grad_rows = {150};
  EXPECT_THROW(run_models(c, wanted), InvalidProblem);
}

// The case without the vocabulary past `valid`.
Case truncated(const Case& c, Index valid) {
  Case out = c;
  for (Tensor* tensor : {&out.student_weight, &out.teacher_weight, &*out.student_bias, &*out.teacher_bias})
    tensor->shape[0] = valid;
  out.options.valid_vocab.reset();
  return out;
}

// Fault: padded vocabulary that enters a sum, the number of chunks (of 32 tokens without it, 16 with it), or
// a gradient.
TEST(Options, PaddedVocabularyDoesNotExist) {
  CaseSpec spec = medium();
  spec.options.valid_vocab = 60;
  const Case padded = make_case(spec), cut = truncated(padded, 60);
  const std::vector<Result> a = run_models(padded), b = run_models(cut);
  for (std::size_t i = 0; i < a.size(); ++i) {
    Result valid_part = a[i];
    EXPECT_TRUE((a[i].student_weight_grad.bottomRows(90).array() == 0).all()) << rounding_models()[i].name;
    valid_part.student_weight_grad = RowMajorMatrix<double>(a[i].student_weight_grad.topRows(60));
    valid_part.student_bias_grad.resize(60);
    expect_same(valid_part, b[i], rounding_models()[i].name);
  }
}

// Fault: a sum that is divided, a mean that is not, a scalar where there is none.
TEST(Options, ReductionsDifferByTheirFactor) {
  CaseSpec spec = medium();
  spec.tokens = 64;  // a power of two: the factor rounds nothing, and bf16 dlogits only change their exponent
  Case c = make_case(spec);
  const std::vector<Result> mean = run_models(c);
  c.options.reduction = Reduction::sum;
  const std::vector<Result> sum = run_models(c);
  c.options.reduction = Reduction::none;
  const std::vector<Result> none = run_models(c);
  for (std::size_t i = 0; i < mean.size(); ++i) {
    const std::string name = rounding_models()[i].name;
    EXPECT_EQ(*sum[i].loss, 64 * *mean[i].loss) << name;
    EXPECT_FALSE(none[i].loss.has_value()) << name;
    EXPECT_EQ(sum[i].student_input_grad, 64 * mean[i].student_input_grad) << name;
    EXPECT_EQ(sum[i].student_weight_grad, 64 * mean[i].student_weight_grad) << name;
    EXPECT_EQ(none[i].student_input_grad, sum[i].student_input_grad) << name;
    for (std::size_t t = 0; t < none[i].token_loss.size(); ++t) {
      const DType dtype = dtype_of(rounding_models()[i].pipeline.loss, DType::bf16);
      EXPECT_EQ(none[i].token_loss[t], round_to(dtype, sum[i].token_loss[t])) << name;
    }
  }
}

// The medium case with every third token ignored, and the inputs of those replaced.
Case with_ignored(double student_value, double teacher_value) {
  Case c = make_case(medium());
  std::vector<std::int64_t> labels(70, 3);
  for (std::size_t t = 0; t < labels.size(); t += 3) labels[t] = c.options.ignore_index;
  c.labels = labels;
  const auto replace = [&](Tensor& tensor, double value) {
    const MatrixView view = tensor.matrix();
    std::vector<double> values;
    for (Index t = 0; t < view.rows; ++t)
      for (Index k = 0; k < view.cols; ++k) values.push_back(t % 3 == 0 ? value : view(t, k));
    tensor = make_tensor(tensor.dtype, tensor.shape, values);
  };
  replace(c.student_input, student_value);
  replace(c.teacher_input, teacher_value);
  return c;
}

// Fault: ignored tokens that are read, counted, or move the chunks.
TEST(Options, IgnoredTokensChangeNothingInGuardedPipelines) {
  const std::vector<Result> poisoned = run_models(with_ignored(nan, infinity)),
                            clean = run_models(with_ignored(0, 0));
  for (std::size_t i = 0; i < clean.size(); ++i) {
    const RoundingModel& model = rounding_models()[i];
    EXPECT_EQ(clean[i].counted, 70 - 24) << model.name;
    EXPECT_EQ(clean[i].token_loss[3], 0) << model.name;
    EXPECT_TRUE((clean[i].student_input_grad.row(3).array() == 0).all()) << model.name;
    if (model.pipeline.guarded) expect_same(poisoned[i], clean[i], model.name);
  }
}

// Fault: published behaviour made better than it is, or worse. The loss of an ignored token is not selected,
// so losses stay right. Its gradient is 0 times what was computed: Liger zeroes the gradient of log q, but
// its log-softmax backward multiplies by the student's softmax; automatic differentiation multiplies
// everything by 0, the teacher's side included. NaN in a row of dlogits reaches that row of dX and all of dW.
TEST(Options, PublishedPipelinesLetNaNOfIgnoredTokensIntoTheGradients) {
  const std::vector<Result> clean = run_models(with_ignored(0, 0)),
                            student = run_models(with_ignored(nan, 0)),
                            teacher = run_models(with_ignored(0, nan));
  for (std::size_t i = 0; i < clean.size(); ++i) {
    const RoundingModel& model = rounding_models()[i];
    if (model.pipeline.guarded) continue;
    EXPECT_EQ(*student[i].loss, *clean[i].loss) << model.name;
    EXPECT_EQ(*teacher[i].loss, *clean[i].loss) << model.name;
    EXPECT_EQ(student[i].token_loss, clean[i].token_loss) << model.name;
    EXPECT_TRUE(student[i].student_input_grad.row(3).array().isNaN().all()) << model.name;
    EXPECT_TRUE(student[i].student_weight_grad.array().isNaN().all()) << model.name;
    EXPECT_EQ(student[i].student_input_grad.row(4), clean[i].student_input_grad.row(4)) << model.name;
    if (std::string(model.name) == "liger") {
      expect_same(teacher[i], clean[i], model.name);
    } else {
      EXPECT_TRUE(teacher[i].student_weight_grad.array().isNaN().all()) << model.name;
    }
  }
}

// Fault: 0/0.
TEST(Options, NothingToCountIsZero) {
  Case c = make_case(medium());
  c.labels = std::vector<std::int64_t>(70, c.options.ignore_index);
  CaseSpec empty = medium();
  empty.tokens = 0;
  for (const Case& none : {c, make_case(empty)}) {
    for (const Result& r : run_models(none)) {
      EXPECT_EQ(*r.loss, 0);
      EXPECT_EQ(r.counted, 0);
      EXPECT_TRUE((r.student_input_grad.array() == 0).all());
      EXPECT_TRUE((r.student_weight_grad.array() == 0).all());
      for (double value : r.student_bias_grad) EXPECT_EQ(value, 0);
    }
  }
}

// Fault: a vocabulary entry that both models remove with a bias of −inf and that still counts, in the
// pipelines that handle it: the result is that of the vocabulary without it. In the others it is 0·(−inf).
TEST(Options, AMaskedLastEntryIsAsIfItWereNotThere) {
  Case c = make_case(medium());
  for (Tensor* bias : {&*c.student_bias, &*c.teacher_bias}) {
    std::vector<double> values;
    for (Index v = 0; v < 150; ++v) values.push_back(v == 149 ? -infinity : bias->vector()(v));
    *bias = make_tensor(bias->dtype, bias->shape, values);
  }
  const std::vector<Result> masked = run_models(c), cut = run_models(truncated(c, 149));
  for (std::size_t i = 0; i < masked.size(); ++i) {
    const RoundingModel& model = rounding_models()[i];
    if (!model.pipeline.guarded) {
      EXPECT_TRUE(std::isnan(*masked[i].loss)) << model.name;
      continue;
    }
    Result kept = masked[i];
    EXPECT_TRUE((kept.student_weight_grad.row(149).array() == 0).all()) << model.name;
    kept.student_weight_grad.conservativeResize(149, Eigen::NoChange);
    kept.student_bias_grad.resize(149);
    // The same additions but for one of 0 at the end; ceil(150/24) = ceil(149/24), so the chunks agree too.
    expect_same(kept, cut[i], model.name);
  }
}

// Fault: a token without a distribution that spares a gradient which linear_jsd says is NaN.
TEST(Options, TokensWithoutADistributionAreNaNAsInTheReference) {
  CaseSpec spec = medium();
  spec.options.valid_vocab = 140;
  Case c = make_case(spec);
  std::vector<double> values;
  for (Index t = 0; t < 70; ++t)
    for (Index k = 0; k < 24; ++k) values.push_back(t == 66 && k == 1 ? nan : c.student_input.matrix()(t, k));
  c.student_input = make_tensor(DType::bf16, c.student_input.shape, values);
  const Result truth = linear_jsd<double>(c.problem(), c.options, Wanted::all());
  const std::vector<Result> results = run_models(c);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Result& r = results[i];
    const char* model = rounding_models()[i].name;
    EXPECT_TRUE(std::isnan(*r.loss)) << model;
    for (std::size_t t = 0; t < 70; ++t)
      EXPECT_EQ(std::isnan(r.token_loss[t]), std::isnan(truth.token_loss[t])) << model;
    EXPECT_TRUE((r.student_input_grad.array().isNaN() == truth.student_input_grad.array().isNaN()).all())
        << model;
    EXPECT_TRUE((r.student_weight_grad.array().isNaN() == truth.student_weight_grad.array().isNaN()).all())
        << model;
    for (std::size_t v = 0; v < 150; ++v)
      EXPECT_EQ(std::isnan(r.student_bias_grad[v]), std::isnan(truth.student_bias_grad[v])) << model;
  }
}

bool representable(DType dtype, const double* values, Index count) {
  return std::all_of(values, values + count, [&](double v) { return round_to(dtype, v) == v; });
}

// Fault: a result wider than the implementation returns it.
TEST(Results, AreStoredAsStated) {
  for (DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    const Case c = make_case(medium(dtype));
    const std::vector<Result> results = run_models(c);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const RoundingModel& model = rounding_models()[i];
      const Result& r = results[i];
      const DType gradient = dtype_of(model.pipeline.gradients, dtype);
      EXPECT_TRUE(representable(gradient, r.student_input_grad.data(), r.student_input_grad.size()))
          << model.name;
      EXPECT_TRUE(representable(gradient, r.student_weight_grad.data(), r.student_weight_grad.size()))
          << model.name;
      EXPECT_TRUE(representable(gradient, r.student_bias_grad.data(), 150)) << model.name;
      EXPECT_TRUE(representable(dtype_of(model.pipeline.loss, dtype), &*r.loss, 1)) << model.name;
    }
  }
}

// Fault: a loss returned in another format than the implementation's: PyTorch's baseline casts it to that of
// its tensors, the others return fp32.
TEST(Results, LossesOfThePyTorchModelsAreInTheInputsFormat) {
  const Case c = make_case(medium());
  const std::vector<Result> results = run_models(c);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::string model = rounding_models()[i].name;
    EXPECT_EQ(representable(DType::bf16, &*results[i].loss, 1), model.starts_with("torch")) << model;
    EXPECT_EQ(representable(DType::f32, &*results[i].loss, 1), model != "float64") << model;
  }
}

// Fault: Liger's weight gradient summed in fp32 after all. Chunks change that gradient and nothing else.
TEST(Models, LigerAddsUpItsWeightGradientInBf16) {
  const Case c = make_case(medium());
  const Pipeline liger = find_rounding_model("liger")->pipeline;
  Pipeline whole = liger;
  whole.chunking = Chunking::whole_batch;
  const Result a = run_pipeline(c.problem(), c.options, Wanted::all(), liger),
               b = run_pipeline(c.problem(), c.options, Wanted::all(), whole);
  EXPECT_EQ(a.token_loss, b.token_loss);
  EXPECT_EQ(a.student_input_grad, b.student_input_grad);
  EXPECT_NE(a.student_weight_grad, b.student_weight_grad);
  EXPECT_NE(a.student_bias_grad, b.student_bias_grad);
}

// Fault: bf16 tensors of one model deciding how the other model's are stored.
TEST(Results, EachModelsTensorsDecideItsOwnFormat) {
  Case c = make_case(medium(DType::f32));
  const std::vector<Result> all32 = run_models(c);
  const Tensor bf16_input = make_case(medium(DType::bf16)).teacher_input;
  c.teacher_input = bf16_input;  // f32 weight: the teacher's common format stays f32
  const std::vector<Result> mixed = run_models(c);
  Pipeline fp32 = find_rounding_model("liger")->pipeline, input = fp32;
  fp32.logits = Storage::fp32;
  const Problem problem = c.problem();
  expect_same(run_pipeline(problem, c.options, Wanted::all(), fp32),
              run_pipeline(problem, c.options, Wanted::all(), input), "f32 with bf16 is f32");
  EXPECT_NE(*mixed.back().loss, *all32.back().loss);
}

double l2_distance(const RowMajorMatrix<double>& a, const RowMajorMatrix<double>& b) {
  double sum = 0;
  for (Index i = 0; i < a.size(); ++i) sum += (a.data()[i] - b.data()[i]) * (a.data()[i] - b.data()[i]);
  return std::sqrt(sum);
}

// Fault: logits that are not rounded, or fp32 logits that are. On the published inputs logits are near
// hidden/4 with a spread of a few units, so the error of a bf16 logit, up to 2^-8 of its size, is 2^15 times
// larger than what fp32 sums make of it (gamma_hidden is far from attained); the ranking below leaves a
// factor of 30 between the classes and would fail by orders of magnitude if a model were in the wrong one.
TEST(Models, AreRankedByTheirLogitsOnThePublishedInputs) {
  CaseSpec spec;
  spec.family = 1;
  spec.tokens = 16;
  spec.student_hidden = 512;
  spec.vocab = 2000;
  const Case c = make_case(spec);
  const Result truth = linear_jsd<double>(c.problem(), c.options, Wanted::all());
  const std::vector<Result> results = run_models(c);
  std::map<AccuracyClass, std::pair<double, double>> extremes;  // smallest and largest error of a class
  for (std::size_t i = 0; i < results.size(); ++i) {
    const double error = l2_distance(results[i].student_input_grad, truth.student_input_grad);
    auto& [low, high] =
        extremes.try_emplace(rounding_models()[i].accuracy_class, infinity, 0.0).first->second;
    low = std::min(low, error);
    high = std::max(high, error);
    EXPECT_TRUE(std::isfinite(error)) << rounding_models()[i].name;  // neither extreme would show NaN
    EXPECT_LE(std::abs(*results[i].loss - *truth.loss), 0.02) << rounding_models()[i].name;
  }
  EXPECT_GE(extremes[AccuracyClass::bf16_logits].first, 30 * extremes[AccuracyClass::fp32_logits].second);
  EXPECT_GE(extremes[AccuracyClass::fp32_logits].first, 30 * extremes[AccuracyClass::float64].second);
}

TEST(Models, AreFoundByName) {
  for (const RoundingModel& model : rounding_models()) EXPECT_EQ(find_rounding_model(model.name), &model);
  for (const char* name : {"torch-eager-bf16", "torch-compile", "liger", "fp32-logits",
                           "fp32-logits-softplus", "one-pass-fp32", "one-pass-bf16", "float64"}) {
    EXPECT_NE(find_rounding_model(name), nullptr) << name;
  }
  EXPECT_EQ(find_rounding_model("torch"), nullptr);
  EXPECT_TRUE(find_rounding_model("float64")->pipeline == Pipeline{});
}

}  // namespace
}  // namespace fljsd
