// SPDX-License-Identifier: Apache-2.0
#include "reference/error_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "reference/error_bound/logit_scale.h"
#include "reference/error_bound/overflow.h"
#include "reference/error_bound/sum_error.h"
#include "reference/parallel.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::size_t at(Index i) {
  return static_cast<std::size_t>(i);
}

double row_norm(const RowMajorMatrix<double>& matrix, Index row) {
  return norms(std::span(matrix.data() + row * matrix.cols(), at(matrix.cols()))).two;
}

// The format that dlogits and a gradient are kept in. Numbers below `underflow` may be flushed to 0.
struct Storage {
  double unit = 0, underflow = 0, largest = infinity;
};

Storage storage_of(DType dtype) {
  const Format format = format_of(dtype);
  Storage storage{unit_roundoff(dtype), std::ldexp(1.0, format.min_exponent),
                  std::ldexp(2 - 2 * unit_roundoff(dtype), format.max_exponent)};
  // fp16 is never flushed to zero: its range is too small for that. Half its smallest subnormal number.
  if (dtype == DType::f16) storage.underflow = std::ldexp(1.0, format.min_exponent - format.precision);
  return storage;
}

// The wider error of the two: a gradient is formed from one and stored in the other.
Storage coarser(const Storage& a, const Storage& b) {
  return {std::max(a.unit, b.unit), std::max(a.underflow, b.underflow), std::min(a.largest, b.largest)};
}

// What the errors of one element of a gradient add up to, for a sum of `terms` products g·r of dlogits and
// rows r of the other factor: of one row of the result, in the 2-norm.
struct GradientScale {
  double terms = 0;
  double elements = 1;  // columns of the result
  double absolute = 0;  // Σ |g|·‖r‖
  double square = 0;    // Σ g²·‖r‖²
  double partial =
      infinity;       // bounds the norm of a partial sum of a regular order, if smaller than `absolute`
  double tiny = 0;    // Σ min(|g|, smallest stored dlogit)·‖r‖
  double result = 0;  // ‖Σ g·r‖
};

// Accumulation alone: a product and terms − 1 additions, divisor, temperature, and the factor r rounded to
// the arithmetic's format if it is wider. The statistical bound for vectors is Pinelis's martingale
// inequality in a Hilbert space, with the constants of Azuma's. `smallest`: what one operation loses to
// underflow, in units of the unscaled gradient.
double accumulation_error(const GradientScale& scale, const DotArithmetic& dot, double smallest) {
  const double partial = std::min(scale.absolute, scale.partial), roundings = scale.terms + 3;
  double error = gamma(roundings, dot.unit) * scale.absolute;
  if (dot.lambda > 0)
    error = std::min(error, martingale_error(roundings * partial * partial, roundings, dot.unit, dot.lambda));
  if (dot.block > 0) {
    const double blocks = std::ceil(scale.terms / dot.block);
    error += blocks * dot.truncation *
             (dot.lambda > 0 ? std::min(5 * partial + 4 * std::sqrt(scale.square), 5 * scale.absolute)
                             : 5 * scale.absolute);
  }
  return error +
         2 * (scale.terms + 2) * smallest * std::sqrt(scale.elements) * std::exp(roundings * dot.unit);
}

// dlogits stored `times` over.
double storage_error(const GradientScale& scale, double unit, double times, double lambda) {
  const double worst = std::expm1(times * std::log1p(unit)) * scale.absolute;
  return lambda > 0 ? std::min(worst, lambda * unit * std::sqrt(times * scale.square)) : worst;
}

// One model (student or teacher) of the problem, with the norms that bound its logits.
struct Head {
  MatrixView input, weight;
  std::optional<VectorView> bias;
  RowNorms weight_norms, input_norms;  // input_norms: of the counted tokens
  BalancedNorms balanced;              // the same, for products of the two
  bool rounded_operands = false;       // the inputs are wider than fp32
  // Range of the format that 16-bit logits are stored in: fp16's if the inputs are, else that of bf16.
  Storage narrow;
};

// Bound on the error of one logit.
double logit_error(const ArithmeticModel& model, const Head& head, std::size_t token, std::size_t v,
                   double logit, double partial, double bias, double temperature) {
  DotScale dot;
  dot.terms = static_cast<double>(head.input.cols);
  dot.total = logit * temperature - bias;
  const RowNorms &inputs = head.balanced.input, &weights = head.balanced.weight;
  dot.absolute = inputs.two[token] * weights.two[v];
  const double fourth = inputs.four[token] * weights.four[v];
  dot.square = fourth * fourth;
  dot.partial_square = partial * partial;
  DotArithmetic arithmetic = model.dot;
  if (!head.rounded_operands) arithmetic.operands = 0;
  const double input_norm = head.input_norms.two[token], weight_norm = head.weight_norms.two[v];
  // An operand out of range overflows by itself; one below it may be flushed to 0.
  if (!(std::max(input_norm, weight_norm) <= arithmetic.largest)) return infinity;

  const double u = arithmetic.unit, stored = model.logit_storage;
  if (stored > unit_roundoff(DType::f16)) {
    arithmetic.largest = std::min(arithmetic.largest, head.narrow.largest);
    arithmetic.smallest = std::max(arithmetic.smallest, head.narrow.underflow);
  }
  double error = dot_error(dot, arithmetic);
  error += arithmetic.smallest * std::sqrt(dot.terms) * (input_norm + weight_norm);
  double size = std::abs(dot.total) + error;
  if (head.bias) {
    error += stored * size;  // stored before the bias is added
    size = std::abs(dot.total + bias) + error;
    error += u * size + (head.bias->dtype == DType::f64 ? model.dot.operands * std::abs(bias) : 0);
  }
  error += stored * size;
  if (size + error > arithmetic.largest) return infinity;
  error /= temperature;
  if (temperature != 1) error += (3 * u + stored) * (std::abs(logit) + error);
  // Second-order products of the relative errors above, and underflow of what is stored.
  error = error * (1 + 4 * u + 4 * stored) + 4 * arithmetic.smallest * std::max(1.0, 1 / temperature);
  return std::abs(logit) + error > arithmetic.largest ? infinity : error;
}

// What one token contributes to the bounds of one model; gradients of the sum over tokens with temperature 1.
struct TokenBound {
  double loss = infinity, logit = 0;
  double input_grad = infinity;  // 2-norm of the error of Σ_v g_v·w_v from errors of g, before storage
  bool may_overflow = false;     // on the way, whatever the size of the results
};

// Everything that depends on a token but not on the model.
struct TokenScale {
  bool finite = false;  // it has a distribution and a finite loss
  double divergence = 0;
  GradientScale input_grad;
};

class Bounds {
 public:
  Bounds(const Problem& problem, const Options& options, const Wanted& wanted, const Result& near,
         std::span<const ArithmeticModel> models)
      : problem_(problem), options_(options), wanted_(wanted), near_(near), models_(models) {
    for (Index t = 0; t < problem.tokens(); ++t)
      if (is_counted(problem, options, t)) tokens_.push_back(t);
    valid_ = valid_vocab(problem, options);
    divisor_ = static_cast<double>(reduction_divisor(options, static_cast<Index>(tokens_.size())));
    factor_ = 1 / divisor_ / options.temperature;
    student_ = head(problem.student_input, problem.student_weight, problem.student_bias);
    teacher_ = head(problem.teacher_input, problem.teacher_weight, problem.teacher_bias);
    input_storage_ = storage_of(problem.student_input.dtype);
    weight_storage_ = storage_of(problem.student_weight.dtype);
    dlogit_storage_ = coarser(input_storage_, weight_storage_);
    if (wanted.student_weight_grad) {
      if (wanted.weight_grad_rows) {
        rows_ = *wanted.weight_grad_rows;
      } else {
        rows_.resize(at(problem.vocab()));
        std::iota(rows_.begin(), rows_.end(), Index{0});
      }
    }
    // Stored before or after the divisor and the temperature are applied: in units of the unscaled gradient.
    unscaled_ = std::max({1.0, divisor_, 1 / factor_});
    tiny_ = dlogit_storage_.underflow;
    for (const ArithmeticModel& model : models)
      if (model.gradients_in_input_format) tiny_ = std::max(tiny_, model.dot.smallest);
    tiny_ *= unscaled_;
  }

  std::vector<ErrorBound> run() {
    const std::size_t models = models_.size();
    result_.resize(models);
    for (ErrorBound& bound : result_) {
      bound.token_loss.assign(at(problem_.tokens()), 0);
      bound.may_overflow.assign(at(problem_.tokens()), false);
      if (wanted_.student_input_grad) bound.student_input_grad.assign(at(problem_.tokens()), 0);
      if (wanted_.student_weight_grad) bound.student_weight_grad.assign(rows_.size(), 0);
      if (wanted_.student_bias_grad) bound.student_bias_grad.assign(at(problem_.vocab()), 0);
    }
    input_grad_.resize(models);
    weight_scale_.resize(rows_.size());
    if (wanted_.student_bias_grad) bias_scale_.resize(at(valid_));

    // 24 bytes an entry: two logits in double, two partial sums in float.
    const Index count = static_cast<Index>(tokens_.size());
    const Index step = std::clamp<Index>((Index{256} << 20) / (24 * valid_), 1, 512);
    for (Index first = 0; first < count; first += step) add_block(first, std::min(step, count - first));
    for (std::size_t m = 0; m < models; ++m) finish(m);
    return std::move(result_);
  }

 private:
  Head head(const MatrixView& input, const MatrixView& weight, const std::optional<VectorView>& bias) const {
    return {input,
            weight,
            bias,
            row_norms(weight, valid_),
            row_norms(input, tokens_),
            balanced_norms(input, tokens_, weight, valid_),
            input.dtype == DType::f64 || weight.dtype == DType::f64,
            storage_of(input.dtype == DType::f16 || weight.dtype == DType::f16 ? DType::f16 : DType::bf16)};
  }

  // One token's row for all models, with the elementwise bounds of dlogits that the weight's and the bias's
  // gradient need: [models, rows_] and [models, valid_].
  struct TokenWork {
    TokenScale scale;
    std::vector<TokenBound> bounds;
    std::vector<std::vector<double>> dlogits;
    std::vector<double> grad, tiny;  // g and flushed()
  };

  void add_block(Index first, Index count) {
    const std::span<const Index> tokens = std::span(tokens_).subspan(at(first), at(count));
    const LogitBlock x =
        logit_block(student_.input, student_.weight, student_.bias, options_.temperature, tokens, valid_);
    const LogitBlock y =
        logit_block(teacher_.input, teacher_.weight, teacher_.bias, options_.temperature, tokens, valid_);
    // Several tokens at a time; what they add to sums over tokens is added in order afterwards.
    constexpr Index group = 8;
    for (Index g = 0; g < count; g += group) {
      const Index members = std::min(group, count - g);
      std::vector<TokenWork> work(at(members));
      const auto one = [&](Index i) { work[at(i)] = token(first + g + i, x, y, g + i); };
      if (members * valid_ < 4096) {  // starting a thread costs more than that
        for (Index i = 0; i < members; ++i) one(i);
      } else {
        parallel_for(members, one);
      }
      for (Index i = 0; i < members; ++i) collect(first + g + i, work[at(i)]);
    }
  }

  TokenWork token(Index number, const LogitBlock& student, const LogitBlock& teacher,
                  Index row_of_block) const {
    const auto n = at(valid_);
    const std::span<const double> x(student.logits.row(row_of_block).data(), n);
    const std::span<const double> y(teacher.logits.row(row_of_block).data(), n);
    TokenWork work;
    work.bounds.resize(models_.size());
    work.dlogits.resize(models_.size());
    const RowCondition row(x, y, options_.beta);
    if (!row.has_distribution()) return work;
    work.scale.finite = std::isfinite(row.divergence);
    work.scale.divergence = row.divergence;

    std::vector<double> dx(n), dy(n), reference_dx(n), reference_dy(n), change(n), evaluation(n);
    // The logits at hand are off themselves, by the bound of the double tier. So everything goes by way of
    // them: from what the model computes to the row at hand, and from there to the truth.
    const ArithmeticModel reference = double_tier_arithmetic();
    const auto fill = [&](const ArithmeticModel& model, std::vector<double>& student_change,
                          std::vector<double>& teacher_change, double& largest) {
      for (std::size_t v = 0; v < n; ++v) {
        student_change[v] = error_at(model, student_, at(number), v, x[v],
                                     student.partial(row_of_block, static_cast<Index>(v)));
        teacher_change[v] = error_at(model, teacher_, at(number), v, y[v],
                                     teacher.partial(row_of_block, static_cast<Index>(v)));
        largest = std::max({largest, student_change[v], teacher_change[v]});
      }
    };
    double ignored = 0;
    fill(reference, reference_dx, reference_dy, ignored);
    const LogitChange to_truth{reference_dx, reference_dy};
    const RatioChange ratio_to_truth = ratio_change(row, to_truth);
    double loss_to_truth = 0;
    std::vector<double> grad_to_truth(n);
    if (work.scale.finite) {
      loss_to_truth = divergence_change(row, to_truth, ratio_to_truth);
      gradient_change(row, ratio_to_truth, grad_to_truth);
    }
    for (std::size_t m = 0; m < models_.size(); ++m) {
      const ArithmeticModel& model = models_[m];
      TokenBound& bound = work.bounds[m];
      fill(model, dx, dy, bound.logit);
      for (std::size_t v = 0; v < n; ++v) dx[v] += reference_dx[v], dy[v] += reference_dy[v];
      const LogitChange logit_change{dx, dy};
      const RatioChange ratio = ratio_change(row, logit_change);
      bound.may_overflow =
          !(bound.logit < infinity) || formulas_may_overflow(row, x, y, ratio, formula_range(model));
      if (!work.scale.finite) continue;
      if (bound.may_overflow) {
        if (needs_dlogits()) work.dlogits[m].assign(n, infinity);
        continue;
      }
      gradient_change(row, ratio, change);
      double loss = evaluation_error({row, x, y, ratio}, model.formula, evaluation);
      for (std::size_t v = 0; v < n; ++v)
        if (std::isnan(evaluation[v])) evaluation[v] = infinity;
      loss += divergence_change(row, logit_change, ratio) + loss_to_truth;
      // Condition numbers were evaluated in float64 too, with errors far below 2^-10 of them.
      loss *= 1 + 0x1p-10;
      if (loss < infinity) loss += model.loss_storage * (row.divergence + loss) + loss_underflow(model);
      if (!(row.divergence + loss <= largest_loss(model))) loss = infinity;
      bound.loss = loss;

      double input_grad = 0, largest_norm = 0;
      for (std::size_t v = 0; v < n; ++v) {
        change[v] = (change[v] + grad_to_truth[v] + evaluation[v]) * (1 + 0x1p-10);
        if (change[v] > 0 && student_.weight_norms.two[v] > 0)
          input_grad += change[v] * student_.weight_norms.two[v];
        largest_norm = std::max(largest_norm, student_.weight_norms.two[v]);
      }
      // ‖g‖₁ and ‖g'‖₁ are at most the Lipschitz constant, however far the logits move.
      if (row.beta < 1) {
        double more = 0;
        for (std::size_t v = 0; v < n; ++v) more += evaluation[v] + grad_to_truth[v];
        const double limit = row.student_grad_norm + student_lipschitz(row.beta) + more;
        input_grad = std::min(input_grad, limit * largest_norm * (1 + 0x1p-10));
      }
      for (std::size_t v = 0; v < n; ++v)
        if (dlogit_may_overflow(model, row, v)) change[v] = input_grad = infinity;
      bound.input_grad = input_grad;
      if (needs_dlogits()) work.dlogits[m] = change;
    }
    if (!work.scale.finite) return work;

    GradientScale& scale = work.scale.input_grad;
    scale.terms = static_cast<double>(n);
    scale.elements = static_cast<double>(problem_.student_input.cols);
    work.tiny = flushed(row);
    double prefix = 0, largest_prefix = 0, largest_norm = 0;
    for (std::size_t v = 0; v < n; ++v) {
      const double g = row.student.grad[v], norm = student_.weight_norms.two[v];
      if (work.tiny[v] > 0) scale.tiny += work.tiny[v] * norm;
      if (g == 0) continue;
      scale.absolute += std::abs(g) * norm;
      scale.square += g * g * norm * norm;
      prefix += g;
      largest_prefix = std::max(largest_prefix, std::abs(prefix));
      largest_norm = std::max(largest_norm, norm);
    }
    if (wanted_.student_input_grad) {
      scale.result = row_norm(near_.student_input_grad, tokens_[at(number)]) / factor_;
      // A partial sum Σ_{v<=k} g_v·w_v: the common part of all w moves by Σ_{v<=k} g_v, the rest has random
      // signs.
      scale.partial = scale.result + largest_prefix * largest_norm + 2 * std::sqrt(scale.square);
    }
    if (needs_dlogits()) work.grad = row.student.grad;
    return work;
  }

  // What dlogits may lose to underflow of their stored format: gradients of log q, prob·score, may be flushed
  // one by one before they are centred, and each adds to the centre.
  std::vector<double> flushed(const RowCondition& row) const {
    std::vector<double> lost(row.size());
    double total = 0;
    for (std::size_t v = 0; v < row.size(); ++v) {
      const double q = row.student.prob[v];
      const double size = row.beta == 0
                              ? q + row.teacher.prob[v]
                              : q * (std::abs(row.student.score[v]) + std::abs(row.student.mean_score));
      lost[v] = std::min(size, tiny_);
      total += lost[v];
    }
    for (std::size_t v = 0; v < row.size(); ++v) lost[v] += row.student.prob[v] * total;
    return lost;
  }

  double error_at(const ArithmeticModel& model, const Head& head, std::size_t token, std::size_t v,
                  double logit, float partial) const {
    if (logit == -infinity) {
      // Probability 0 does not move, unless the class computes −inf + inf: a bias that removes an entry, and
      // a finite product that may overflow to +inf.
      const double product = head.balanced.input.two[token] * head.balanced.weight.two[v];
      return std::isfinite(product) && !(product < model.dot.largest) ? infinity : 0;
    }
    const double bias = head.bias ? (*head.bias)(static_cast<Index>(v)) : 0;
    const double error = logit_error(model, head, token, v, logit, partial, bias, options_.temperature);
    return std::isnan(error) ? infinity : error;
  }

  Range formula_range(const ArithmeticModel& model) const {
    const double stored = model.formula.log_probability_storage > 0
                              ? std::min(student_.narrow.largest, teacher_.narrow.largest)
                              : infinity;
    return {model.dot.largest, std::min(stored, model.dot.largest)};
  }

  // Of one element, scaled or not; where gradients of log-probabilities are stored, of its parts.
  bool dlogit_may_overflow(const ArithmeticModel& model, const RowCondition& row, std::size_t v) const {
    const double scale = std::max(1.0, factor_), part = largest_gradient_part(row, v);
    const double stored = model.formula.log_probability_storage > 0 ? part : std::abs(row.student.grad[v]);
    return !(part * scale <= model.dot.largest && stored * scale <= dlogit_storage(model).largest);
  }

  bool needs_dlogits() const { return wanted_.student_weight_grad || wanted_.student_bias_grad; }

  // Adds one token to the bounds of the result and to the sums over tokens.
  void collect(Index number, const TokenWork& work) {
    const Index t = tokens_[at(number)];
    for (std::size_t m = 0; m < models_.size(); ++m) {
      const TokenBound& bound = work.bounds[m];
      result_[m].token_loss[at(t)] = bound.loss;
      result_[m].logit = std::max(result_[m].logit, bound.logit);
      result_[m].may_overflow[at(t)] = bound.may_overflow;
      if (wanted_.student_input_grad) add_input_grad(m, t, bound, work.scale);
    }
    if (!work.scale.finite) {
      all_finite_ = false;
      return;
    }
    if (!needs_dlogits()) return;
    const double norm = student_.input_norms.two[at(number)];
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      if (rows_[r] >= valid_) continue;
      const double g = work.grad[at(rows_[r])];
      GradientScale& scale = weight_scale_[r];
      scale.terms += 1;
      scale.elements = static_cast<double>(problem_.student_weight.cols);
      scale.absolute += std::abs(g) * norm;
      scale.square += g * g * norm * norm;
      scale.tiny += work.tiny[at(rows_[r])] * norm;
      for (std::size_t m = 0; m < models_.size(); ++m) {
        // Without a bound it is infinite even for a row of zeros, because 0·NaN is NaN.
        const double change = work.dlogits[m][at(rows_[r])];
        result_[m].student_weight_grad[r] += change == infinity ? change : change * norm;
      }
    }
    for (std::size_t v = 0; v < bias_scale_.size(); ++v) {
      const double g = work.grad[v];
      GradientScale& scale = bias_scale_[v];
      scale.terms += 1;
      scale.absolute += std::abs(g);
      scale.square += g * g;
      scale.tiny += work.tiny[v];
      for (std::size_t m = 0; m < models_.size(); ++m) result_[m].student_bias_grad[v] += work.dlogits[m][v];
    }
  }

  // Errors of a whole gradient: what errors of dlogits and accumulation do row by row, and the storage of
  // dlogits, whose errors are independent from row to row.
  struct Total {
    double error = 0;            // 2-norm over rows of the propagated and accumulated error
    double storage_worst = 0;    // 2-norm over rows of unit · Σ |g|·‖r‖
    double storage = 0;          // (Σ g²·‖r‖²)^(1/2) over everything
    double largest_storage = 0;  // and of the largest row
    double result = 0;

    void add(double row_error, const GradientScale& scale, double unit, double times) {
      error = std::hypot(error, row_error);
      storage_worst = std::hypot(storage_worst, storage_error(scale, unit, times, 0));
      storage = std::hypot(storage, std::sqrt(times * scale.square));
      largest_storage = std::max(largest_storage, std::sqrt(times * scale.square));
      result = std::hypot(result, scale.result);
    }
    // The norm of Σ delta_tv·g_tv·r_v, |delta| <= unit, is a convex function of the deltas whose Lipschitz
    // constant is at most that of the largest row, so it exceeds its mean by 2·lambda times that with
    // probability exp(−lambda²/2) only (Boucheron, Lugosi and Massart, Concentration Inequalities, 6.10).
    double value(double unit, double final_unit, double lambda) const {
      double stored = storage_worst;
      if (lambda > 0) stored = std::min(stored, unit * (storage + 2 * lambda * largest_storage));
      return error + stored + final_unit * result;
    }
  };

  // Storage of dlogits and of gradients, as the model allows it.
  Storage dlogit_storage(const ArithmeticModel& model) const { return stored(model, dlogit_storage_); }
  static Storage stored(const ArithmeticModel& model, const Storage& format) {
    const Storage least{model.dot.unit, model.dot.smallest, model.dot.largest};
    return model.gradients_in_input_format ? coarser(format, least) : least;
  }

  double largest_loss(const ArithmeticModel& model) const {
    return model.loss_storage > model.formula.unit ? std::min(student_.narrow.largest, model.dot.largest)
                                                   : model.dot.largest;
  }
  // A loss that may be stored narrower than it is computed is stored in the input's format.
  double loss_underflow(const ArithmeticModel& model) const {
    return model.loss_storage > model.formula.unit ? std::max(student_.narrow.underflow, model.dot.smallest)
                                                   : model.dot.smallest;
  }

  // Error of one row of a gradient except for the storage of dlogits and of the result.
  double row_error(const ArithmeticModel& model, double propagated, const GradientScale& scale) const {
    const Storage dlogits = dlogit_storage(model);
    // How often a gradient of logits is stored: of log-probabilities, scaled logits and logits.
    const int stages = !model.gradients_in_input_format            ? 0
                       : model.formula.log_probability_storage > 0 ? 3
                                                                   : 1;
    return propagated * (1 + 2 * dlogits.unit + gamma(scale.terms + 2, model.dot.unit)) +
           stages * scale.tiny + accumulation_error(scale, model.dot, model.dot.smallest * unscaled_);
  }

  // How often dlogits are rounded to their format once they are centred: before and after the division by the
  // temperature where log-probabilities, and so all tensors of the chain, are stored. (The gradient of log q
  // is part of evaluation_error().)
  double dlogit_stores(const ArithmeticModel& model) const {
    return model.formula.log_probability_storage > 0 && options_.temperature != 1 ? 2 : 1;
  }

  // Whether a partial sum, scaled or not, may leave the range of what it is kept in.
  bool may_overflow(const ArithmeticModel& model, const GradientScale& scale, const Storage& storage) const {
    double largest = model.dot.largest;
    if (model.weight_grad_in_chunks) largest = std::min(largest, storage.largest);
    return !(2 * scale.absolute * std::max(1.0, factor_) < largest);
  }

  // Storage of a row of the result: relative to it and its error; what underflows; what overflows.
  double final_error(const Storage& storage, double result, double error, double elements) const {
    if (!((result + error) * factor_ <= storage.largest)) return infinity;
    // `result` is that of the reference, which may be off by as much as `error` itself.
    return storage.unit * (result + 2 * error) + storage.underflow * std::sqrt(elements) / factor_;
  }

  void add_input_grad(std::size_t m, Index t, const TokenBound& bound, const TokenScale& token) {
    double& out = result_[m].student_input_grad[at(t)];
    if (!token.finite) {
      out = infinity;
      return;
    }
    const ArithmeticModel& model = models_[m];
    const Storage dlogits = dlogit_storage(model), storage = stored(model, input_storage_);
    const GradientScale& scale = token.input_grad;
    if (!(bound.input_grad < infinity) || may_overflow(model, scale, storage)) {
      out = infinity;
      input_grad_[m].error = infinity;
      return;
    }
    const double error = row_error(model, bound.input_grad, scale), stores = dlogit_stores(model);
    const double with_storage = error + storage_error(scale, dlogits.unit, stores, model.dot.lambda);
    const double rounding =
        final_error(storage, scale.result, with_storage, static_cast<double>(problem_.student_input.cols));
    out = factor_ * (with_storage + rounding);
    input_grad_[m].add(error + rounding - storage.unit * scale.result, scale, dlogits.unit, stores);
  }

  void finish(std::size_t m) {
    const ArithmeticModel& model = models_[m];
    ErrorBound& bound = result_[m];
    const double lambda = model.dot.lambda;
    const auto counted = static_cast<double>(tokens_.size());
    if (options_.reduction != Reduction::none) {
      double sum = 0;
      std::vector<double> losses;
      for (Index t : tokens_) {
        sum += bound.token_loss[at(t)];
        losses.push_back(std::abs(near_.token_loss[at(t)]) + bound.token_loss[at(t)]);
      }
      const double total = std::accumulate(losses.begin(), losses.end(), 0.0), size = total / divisor_;
      if (std::isfinite(size))
        sum += sum_error(losses, model.formula.unit, lambda) + 2 * model.formula.unit * size * divisor_;
      bound.loss = tokens_.empty() ? 0 : sum / divisor_ + model.loss_storage * size + loss_underflow(model);
      if (!(size + bound.loss <= largest_loss(model) && total <= model.dot.largest)) bound.loss = infinity;
    }
    const Storage dlogits = dlogit_storage(model);
    if (wanted_.student_input_grad) {
      const Storage storage = stored(model, input_storage_);
      bound.student_input_grad_total =
          all_finite_ ? factor_ * input_grad_[m].value(dlogits.unit, storage.unit, lambda) : infinity;
      if (std::isnan(bound.student_input_grad_total)) bound.student_input_grad_total = infinity;
    }
    if (wanted_.student_weight_grad) {
      const Storage storage = stored(model, weight_storage_);
      Total total;
      for (std::size_t r = 0; r < rows_.size(); ++r) {
        double& out = bound.student_weight_grad[r];
        if (rows_[r] >= valid_ || tokens_.empty()) {
          out = 0;
          continue;
        }
        GradientScale scale = weight_scale_[r];
        if (!all_finite_ || !(out < infinity) || may_overflow(model, scale, storage)) {
          out = infinity;
          total.error = infinity;
          continue;
        }
        scale.result = row_norm(near_.student_weight_grad, static_cast<Index>(r)) / factor_;
        double error = row_error(model, out, scale);
        if (model.weight_grad_in_chunks) error += chunk_error(scale, storage, lambda, counted);
        const double stores = dlogit_stores(model);
        const double with_storage = error + storage_error(scale, dlogits.unit, stores, lambda);
        const double rounding = final_error(storage, scale.result, with_storage,
                                            static_cast<double>(problem_.student_weight.cols));
        out = factor_ * (with_storage + rounding);
        total.add(error + rounding - storage.unit * scale.result, scale, dlogits.unit, stores);
      }
      const bool any_valid = std::any_of(rows_.begin(), rows_.end(), [&](Index v) { return v < valid_; });
      bound.student_weight_grad_total =
          !all_finite_ && any_valid ? infinity : factor_ * total.value(dlogits.unit, storage.unit, lambda);
      if (std::isnan(bound.student_weight_grad_total)) bound.student_weight_grad_total = infinity;
    }
    if (wanted_.student_bias_grad && !tokens_.empty()) {
      const Storage storage =
          stored(model, problem_.student_bias ? storage_of(problem_.student_bias->dtype) : weight_storage_);
      for (std::size_t v = 0; v < bias_scale_.size(); ++v) {
        double& out = bound.student_bias_grad[v];
        const GradientScale& scale = bias_scale_[v];
        if (!all_finite_ || !(out < infinity) || may_overflow(model, scale, storage)) {
          out = infinity;
          continue;
        }
        double error =
            row_error(model, out, scale) + storage_error(scale, dlogits.unit, dlogit_stores(model), lambda);
        if (model.weight_grad_in_chunks) error += chunk_error(scale, storage, lambda, counted);
        error += final_error(storage, std::abs(near_.student_bias_grad[v]) / factor_, error, 1);
        out = factor_ * error;
      }
    }
  }

  // A gradient summed in its stored format over chunks of tokens: each chunk's sum is rounded, and so is the
  // running sum after each chunk, so a term passes chunks + 1 roundings at most. Rounding to nearest is no
  // longer random when increments stay below half a unit of the sum, which takes more than 1 / (2·unit)
  // chunks: then the worst case.
  double chunk_error(const GradientScale& scale, const Storage& storage, double lambda,
                     double counted) const {
    const double chunks = std::min(counted, std::ceil(static_cast<double>(problem_.vocab()) /
                                                      static_cast<double>(problem_.student_weight.cols)));
    const double unit = storage.unit, roundings = chunks + 1;
    const double worst = std::expm1(roundings * std::log1p(unit)) * scale.absolute;
    const double tiny =
        2 * chunks * storage.underflow * std::sqrt(scale.elements) * std::exp(roundings * unit) / factor_;
    if (!(lambda > 0) || chunks * 2 * unit > 1) return worst + tiny;
    // The chunks' own sums together have at most the square of Σ |g|·‖r‖, each running sum the same.
    return tiny + std::min(worst, martingale_error(roundings * scale.absolute * scale.absolute, roundings,
                                                   unit, lambda));
  }

  const Problem& problem_;
  const Options& options_;
  const Wanted& wanted_;
  const Result& near_;
  std::span<const ArithmeticModel> models_;
  std::vector<Index> tokens_;  // counted ones
  Index valid_ = 0;
  double divisor_ = 1, factor_ = 1, unscaled_ = 1, tiny_ = 0;
  Head student_, teacher_;
  Storage input_storage_, weight_storage_, dlogit_storage_;
  std::vector<Index> rows_;  // of the weight gradient

  std::vector<ErrorBound> result_;
  std::vector<Total> input_grad_;            // one for each model
  std::vector<GradientScale> weight_scale_;  // one for each of rows_
  std::vector<GradientScale> bias_scale_;    // [valid_]
  bool all_finite_ = true;                   // every counted token has a distribution and a finite loss
};

void check_near(const Problem& problem, const Wanted& wanted, const Result& near) {
  const auto rows =
      wanted.weight_grad_rows ? static_cast<Index>(wanted.weight_grad_rows->size()) : problem.vocab();
  const bool complete = near.token_loss.size() == at(problem.tokens()) &&
                        (!wanted.student_input_grad || near.student_input_grad.rows() == problem.tokens()) &&
                        (!wanted.student_weight_grad || near.student_weight_grad.rows() == rows) &&
                        (!wanted.student_bias_grad || near.student_bias_grad.size() == at(problem.vocab()));
  if (!complete)
    throw std::invalid_argument(
        "the result that error bounds are computed near lacks a part that is wanted, or has another shape");
}

}  // namespace

ArithmeticModel ArithmeticModel::with_lambda(double lambda) const {
  ArithmeticModel model = *this;
  model.dot.lambda = model.formula.lambda = lambda;
  return model;
}

ArithmeticModel double_tier_arithmetic() {
  ArithmeticModel model;
  model.dot.unit = 0x1p-53;
  model.dot.smallest = std::numeric_limits<double>::denorm_min();
  model.dot.largest = std::numeric_limits<double>::max();
  model.formula.unit = 0x1p-53;
  model.formula.smallest = std::numeric_limits<double>::denorm_min();
  model.formula.difference_form = true;
  return model;
}

std::vector<ErrorBound> error_bounds(const Problem& problem, const Options& options, const Wanted& wanted,
                                     const Result& near, std::span<const ArithmeticModel> models) {
  validate(problem, options);
  check_near(problem, wanted, near);
  return Bounds(problem, options, wanted, near, models).run();
}

ErrorBound double_tier_bound(const Problem& problem, const Options& options, const Wanted& wanted,
                             const Result& result) {
  const ArithmeticModel model = double_tier_arithmetic();
  return error_bounds(problem, options, wanted, result, std::span(&model, 1)).front();
}

}  // namespace fljsd
