// SPDX-License-Identifier: Apache-2.0
#include "verify/tests/gpu/gpu_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <stdexcept>

#include <gtest/gtest.h>

#include "reference/divergence.h"

namespace fljsd::testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

HostMatrix make_matrix(DType dtype, Index rows, Index cols, Index pad) {
  HostMatrix m{dtype, rows, cols, cols + pad, {}};
  // all bits set: NaN in every format
  m.bytes.assign(static_cast<std::size_t>(rows * m.ld) * size_of(dtype), std::byte{0xff});
  return m;
}

class Draw {
 public:
  explicit Draw(const Recipe& recipe) : values_(recipe.values), generator_(recipe.seed) {}

  double input(double spread, Index hidden) {
    switch (values_) {
      case Recipe::Values::normal:
        return normal_(generator_) * std::sqrt(spread) / std::sqrt(std::sqrt(static_cast<double>(hidden)));
      case Recipe::Values::uniform: return pick(0, 255) / 256.0;
      default: return pick(-1, 1);
    }
  }
  double pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator_); }
  bool happens(double probability) { return std::bernoulli_distribution(probability)(generator_); }

 private:
  Recipe::Values values_;
  std::mt19937_64 generator_;
  std::normal_distribution<double> normal_;
};

void fill(HostMatrix& m, Draw& draw, double spread) {
  for (Index r = 0; r < m.rows; ++r) {
    for (Index c = 0; c < m.cols; ++c) m.set(r, c, draw.input(spread, m.cols));
  }
}

}  // namespace

std::string describe(const Recipe& r) {
  std::ostringstream text;
  text << r.tokens << " tokens, vocab " << r.vocab << ", hidden " << r.student_hidden << '/'
       << r.teacher_hidden << ", " << name(r.student_dtype) << '/' << name(r.teacher_dtype) << ", beta "
       << r.options.beta << ", temperature " << r.options.temperature << ", " << name(r.options.reduction)
       << ", ignored " << r.ignored << ", pad " << r.pad << ", misaligned by " << r.misalign << ", seed "
       << r.seed;
  if (r.options.valid_vocab) text << ", valid_vocab " << *r.options.valid_vocab;
  if (r.student_bias) text << ", student bias " << name(*r.student_bias);
  if (r.teacher_bias) text << ", teacher bias " << name(*r.teacher_bias);
  if (r.values == Recipe::Values::near) text << ", gap " << r.gap;
  return text.str();
}

Problem HostCase::problem() const {
  Problem p{
      student_input.view(), student_weight.view(), teacher_input.view(), teacher_weight.view(), {}, {}, {}};
  if (student_bias) p.student_bias = {student_bias->dtype, student_bias->bytes.data(), student_bias->cols};
  if (teacher_bias) p.teacher_bias = {teacher_bias->dtype, teacher_bias->bytes.data(), teacher_bias->cols};
  if (labels) p.labels = *labels;
  return p;
}

HostCase make_case(const Recipe& r) {
  HostCase c;
  c.recipe = r;
  Draw draw(r);
  const bool near = r.values == Recipe::Values::near;
  const Index teacher_hidden = near ? r.student_hidden + 1 : r.teacher_hidden;
  c.student_input = make_matrix(r.student_dtype, r.tokens, r.student_hidden, r.pad);
  c.student_weight = make_matrix(r.student_dtype, r.vocab, r.student_hidden, r.pad);
  c.teacher_input = make_matrix(r.teacher_dtype, r.tokens, teacher_hidden, r.pad);
  c.teacher_weight = make_matrix(r.teacher_dtype, r.vocab, teacher_hidden, r.pad);
  fill(c.student_input, draw, r.spread);
  fill(c.student_weight, draw, r.spread);
  if (near) {  // the teacher is the student with one more hidden entry, 1 in the inputs and gap·{−1, 0, 1} in
               // the weights
    const auto extend = [&](HostMatrix& to, const HostMatrix& from, const auto& last) {
      for (Index row = 0; row < to.rows; ++row) {
        for (Index col = 0; col < from.cols; ++col) to.set(row, col, from.at(row, col));
        to.set(row, from.cols, last());
      }
    };
    extend(c.teacher_input, c.student_input, [] { return 1.0; });
    extend(c.teacher_weight, c.student_weight, [&] { return r.gap * draw.pick(-1, 1); });
  } else {
    fill(c.teacher_input, draw, r.spread);
    fill(c.teacher_weight, draw, r.spread);
  }
  const auto bias = [&](DType dtype, const HostMatrix* other) {
    HostMatrix b = make_matrix(dtype, 1, r.vocab, 0);
    for (Index v = 0; v < r.vocab; ++v) {
      double value = draw.pick(-8, 8) / 4;
      // −inf in one model only, and in both
      if (r.minus_infinity &&
          (draw.happens(0.1) || (other != nullptr && other->at(0, v) == -infinity && v % 2 == 0))) {
        value = -infinity;
      }
      b.set(0, v, value);
    }
    return b;
  };
  if (r.student_bias) c.student_bias = bias(*r.student_bias, nullptr);
  if (r.teacher_bias) c.teacher_bias = bias(*r.teacher_bias, c.student_bias ? &*c.student_bias : nullptr);
  if (r.ignored > 0) {
    c.labels.emplace();
    for (Index t = 0; t < r.tokens; ++t)
      c.labels->push_back(draw.happens(r.ignored) ? r.options.ignore_index : t);
  }
  return c;
}

namespace {

StageRequest request_for(const HostCase& host, const std::string& stage, bool gradients,
                         const Configure& configure) {
  const Recipe& r = host.recipe;
  StageRequest request;
  request.stage = stage;
  request.gradients = gradients;
  request.gradient_dtype = r.gradient_dtype.value_or(r.student_dtype);
  request.gradient_padding = r.pad;
  request.offset = [misalign = r.misalign](DType dtype) {
    return static_cast<std::size_t>(misalign) * size_of(dtype);
  };
  if (configure) request.configure = configure;
  return request;
}

}  // namespace

DeviceCase::DeviceCase(const HostCase& host, const std::string& stage, bool gradients,
                       const Configure& configure)
    : name_(stage + ": " + describe(host.recipe)),
      call_(host.problem(), host.recipe.options, request_for(host, stage, gradients, configure)) {}

StageResult DeviceCase::run(std::uint8_t workspace_poison) {
  return checked(call_.run(workspace_poison));
}

StageResult DeviceCase::collect() {
  return checked(call_.collect());
}

StageResult DeviceCase::checked(StageResult result) const {
  for (const std::string& violation : call_.violations()) ADD_FAILURE() << name_ << ": " << violation;
  return result;
}

std::vector<std::string> real_stages() {
  std::vector<std::string> names;
  for (int i = 0; i < fljsd_stage_count(); ++i) {
    fljsd_stage stage{};
    stage.struct_size = sizeof stage;
    check_status(fljsd_stage_get(i, &stage));
    if (!stage.is_baseline) names.emplace_back(stage.name);
  }
  return names;
}

std::string stage_test_name(const ::testing::TestParamInfo<std::string>& stage) {
  std::string name = stage.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool is_one_pass(const std::string& stage) {
  return stage == "chunked-vocab" || stage == "fused";
}

// The stages' files state these budgets; here they are the tolerances.
RowBudget budget_of(const std::string& stage, const HostCase&) {
  if (is_one_pass(stage)) return {3.7e-6, 4e-6, 1.2e-5, 3.7e-6};
  return {1e-6, 4e-6, 1.2e-5, 0};
}

namespace {

// |got − want| <= bound, or both NaN, or the same infinity. NaN in one only fails.
bool is_close(double got, double want, double bound) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::abs(got - want) <= bound;
}

// A counted row: normalised logits, and the errors that its quantities may have.
struct RowBounds {
  bool judged = true;            // gradients exist and are finite
  double loss = 0;               // bound of the error of the token's loss
  std::vector<double> gradient;  // |dD/dx_v|
  std::vector<double> gradient_error;
};

}  // namespace

void expect_close(const StageResult& result, const HostCase& host, const std::string& stage,
                  double logit_error) {
  const Recipe& r = host.recipe;
  const Problem problem = host.problem();
  const Options& options = r.options;
  const double beta = options.beta;
  const std::string what = stage + ": " + describe(r);
  const bool gradients = !result.input_grad.bytes.empty() || !result.bias_grad.empty();
  const Result truth = linear_jsd<double>(problem, options, gradients ? Wanted::all() : Wanted{});
  const RowBudget budget = budget_of(stage, host);
  const Index valid = valid_vocab(problem, options);
  const Index counted = count_tokens(problem, options);
  const double divisor = static_cast<double>(reduction_divisor(options, counted));

  std::vector<RowBounds> rows(static_cast<std::size_t>(r.tokens));
  bool all_judged = true;
  double loss_bound = 0;
  for (Index t = 0; t < r.tokens; ++t) {
    RowBounds& row = rows[static_cast<std::size_t>(t)];
    row.gradient.assign(static_cast<std::size_t>(valid), 0);
    row.gradient_error.assign(static_cast<std::size_t>(valid), 0);
    const double want = truth.token_loss[static_cast<std::size_t>(t)];
    if (is_counted(problem, options, t)) {
      LogitRows<double> logits = fljsd::logits<double>(problem, options, t);
      // 1/temperature is a rounded float: every logit is off by 2^-24 of its distance from the reference.
      double low = infinity, high = -infinity;
      for (const auto* side : {&logits.student, &logits.teacher}) {
        for (const double value : *side) {
          if (!std::isfinite(value)) continue;
          low = std::min(low, value);
          high = std::max(high, value);
        }
      }
      const double spread = high - low;
      int exponent;
      const bool exact_scale = std::frexp(options.temperature, &exponent) == 0.5;
      const double delta = logit_error + (exact_scale ? 0 : spread * 0x1p-22);
      const std::vector<double> x = logits.student, y = logits.teacher;
      if (normalise<double>(logits.student, logits.teacher)) {
        const double kl = beta > 0 ? student_kl<double>(logits.student, logits.teacher, beta) : 0;
        // Mean distance of the logits' difference from 0 under the first distribution of an endpoint
        // divergence: what the one-pass KL sums, from logits relative to the rows' maxima.
        const double offset = *std::max_element(y.begin(), y.end()) - *std::max_element(x.begin(), x.end());
        double mean_distance = 0;
        for (std::size_t v = 0; v < x.size(); ++v) {
          const LogRatio<double> entry{logits.student[v], logits.teacher[v]};
          const double first = beta == 0 ? entry.p() : entry.q();
          if (first > 0) mean_distance += first * std::abs(y[v] - x[v] - offset);
        }
        const bool endpoint = beta == 0 || beta == 1;
        const double one_pass_kl = is_one_pass(stage) && endpoint ? 4e-6 * (1 + mean_distance) : 0;
        // D is Lipschitz in the logits: Σ_v |dD/dx_v| <= 2·(1/e + 1) for either model and 0 < beta < 1 (terms
        // of (1−beta)·q·|log(q/M)| are at most (1−beta)·(−log(1−beta)) <= 1/e where q > M, and (M − q)⁺ sums
        // to <= 1). KL endpoints: |dKL| <= (spread + KL)·2δ.
        const double lipschitz = endpoint ? 2 * (1 + spread + std::abs(want)) : 2.8;
        row.loss = budget.divergence_absolute + budget.divergence_relative * std::abs(want) + one_pass_kl +
                   2 * lipschitz * delta;
        row.judged = std::isfinite(want);
        for (Index v = 0; v < valid && row.judged; ++v) {
          const auto i = static_cast<std::size_t>(v);
          const LogRatio<double> entry{logits.student[i], logits.teacher[i]};
          const double q = entry.q(), p = entry.p();
          const double g = gradient_term<double>(entry, beta, kl);
          row.gradient[i] = std::abs(g);
          if (beta == 0) {
            row.gradient_error[i] = 4e-6 * std::abs(g) + 1e-6 * std::min(p, q) + 4 * delta * std::max(p, q);
          } else if (q > 0) {
            const double weight = beta == 1 ? 1 : 1 - beta;
            const double size = std::abs(kl) + std::abs(log_q_over_m<double>(entry, beta));
            const double constant_error = beta == 1 ? one_pass_kl : budget.kappa;
            row.gradient_error[i] = weight * q * (budget.gradient * size + 1e-6) + q * constant_error +
                                    6 * delta * q * (1 + size) * (endpoint ? 1 + spread : 1);
          }
        }
      } else {
        row.judged = false;
      }
    }
    all_judged = all_judged && row.judged;
    loss_bound += row.loss;
    const double got = result.token_loss[static_cast<std::size_t>(t)];
    EXPECT_TRUE(is_close(got, want, row.loss + std::abs(want) * 0x1p-24))
        << what << ": token " << t << " has loss " << got << ", not " << want << " ± " << row.loss;
  }
  if (truth.loss) {
    const double bound = loss_bound / divisor + std::abs(*truth.loss) * 0x1p-23;
    EXPECT_TRUE(is_close(result.loss, *truth.loss, bound))
        << what << ": the loss is " << result.loss << ", not " << *truth.loss << " ± " << bound;
  }
  if (!gradients) return;

  // Each dlogit is rounded to the inputs' format (fp16: half its least subnormal, 2^-25, scaled by 2^15 for
  // beta < 1); sums are in fp32: a summand is rounded or truncated at most once for each partial sum, 2^-23
  // of Σ|summands| each.
  const double u_dlogits = unit_roundoff(r.student_dtype), tiny = beta < 1 ? 0x1p-40 : 0x1p-25;
  const DType gradient_dtype = r.gradient_dtype.value_or(r.student_dtype);
  const double u_out = unit_roundoff(gradient_dtype);
  const double smallest =
      gradient_dtype == DType::f16 ? 0x1p-24 : 0x1p-126;  // flushed or rounded as subnormals
  const double factor = 1 / (divisor * options.temperature);
  const auto entry_error = [&](const RowBounds& row, std::size_t v) {
    return row.gradient_error[v] + u_dlogits * (row.gradient[v] + row.gradient_error[v]) + tiny;
  };
  const auto compare = [&](double got, double want, double error, double sum, Index length, const char* name,
                           Index i, Index j) {
    const double sums = static_cast<double>(length + 16) * 0x1p-23 * (sum + error);
    const double bound =
        factor * (error + sums) + (u_out + 0x1p-22) * (std::abs(want) + factor * error) + smallest;
    EXPECT_TRUE(is_close(got, want, bound)) << what << ": " << name << '[' << i << ", " << j << "] is " << got
                                            << ", not " << want << " ± " << bound;
    return is_close(got, want, bound);
  };
  int failures = 0;  // a wrong matrix is wrong in many places: ten lines will do
  for (Index t = 0; t < r.tokens && failures < 10; ++t) {
    const RowBounds& row = rows[static_cast<std::size_t>(t)];
    if (!row.judged && std::isinf(truth.token_loss[static_cast<std::size_t>(t)])) continue;
    for (Index h = 0; h < r.student_hidden && failures < 10; ++h) {
      double error = 0, sum = 0;
      for (Index v = 0; v < valid; ++v) {
        const auto i = static_cast<std::size_t>(v);
        const double w = std::abs(host.student_weight.at(v, h));
        error += entry_error(row, i) * w;
        sum += row.gradient[i] * w;
      }
      failures += !compare(result.input_grad.at(t, h), truth.student_input_grad(t, h), error, sum, valid,
                           "student_input_grad", t, h);
    }
  }
  const bool any_infinite = std::any_of(truth.token_loss.begin(), truth.token_loss.end(),
                                        [](double loss) { return std::isinf(loss); });
  if (any_infinite) return;
  for (Index v = 0; v < r.vocab && failures < 20; ++v) {
    for (Index h = 0; h <= r.student_hidden && failures < 20; ++h) {  // h == hidden: the bias
      double error = 0, sum = 0;
      for (Index t = 0; t < r.tokens && v < valid; ++t) {
        if (!is_counted(problem, options, t)) continue;
        const double a = h < r.student_hidden ? std::abs(host.student_input.at(t, h)) : 1;
        error += entry_error(rows[static_cast<std::size_t>(t)], static_cast<std::size_t>(v)) * a;
        sum += rows[static_cast<std::size_t>(t)].gradient[static_cast<std::size_t>(v)] * a;
      }
      if (h < r.student_hidden) {
        failures += !compare(result.weight_grad.at(v, h), truth.student_weight_grad(v, h), error, sum,
                             r.tokens, "student_weight_grad", v, h);
      } else {
        failures += !compare(result.bias_grad[static_cast<std::size_t>(v)],
                             truth.student_bias_grad[static_cast<std::size_t>(v)], error, sum, r.tokens,
                             "student_bias_grad", v, 0);
      }
    }
  }
}

}  // namespace fljsd::testing
