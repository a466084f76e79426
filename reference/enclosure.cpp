// SPDX-License-Identifier: Apache-2.0
#include "reference/enclosure.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/exact_rows.h"
#include "reference/linear_jsd_detail.h"
#include "reference/parallel.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// x in scientific notation with `digits` significant digits, rounded in the given direction.
std::string decimal(mpfr_srcptr x, unsigned digits, mpfr_rnd_t direction) {
  if (mpfr_nan_p(x)) return "nan";
  if (mpfr_inf_p(x)) return mpfr_sgn(x) < 0 ? "-inf" : "inf";
  if (mpfr_zero_p(x)) return "0";
  mpfr_exp_t exponent = 0;  // x = 0.DIGITS · 10^exponent
  char* const written = mpfr_get_str(nullptr, &exponent, 10, digits, x, direction);
  std::string text = written;
  mpfr_free_str(written);
  text.erase(text.find_last_not_of('0') + 1);
  const std::size_t first = text[0] == '-' ? 1 : 0;
  if (text.size() > first + 1) text.insert(first + 1, ".");
  return exponent == 1 ? text : text + "e" + std::to_string(exponent - 1);
}

// A value that is known without arithmetic.
Enclosure exactly(double value) {
  const std::string text = std::isnan(value) ? "nan" : value == 0 ? "0" : value < 0 ? "-inf" : "inf";
  return {value, value, text, text, value};
}

// Nothing is known yet.
Enclosure anything() {
  return {-infinity, infinity, "-inf", "inf", std::nullopt};
}

bool settled(const Enclosure& enclosure) {
  return enclosure.rounds_to.has_value();
}
bool all_settled(const std::vector<Enclosure>& enclosures) {
  return std::all_of(enclosures.begin(), enclosures.end(), settled);
}

// Replaces those of `enclosures` in [first, first + count) that are not settled by what `value(k)` says, k =
// 0
// .. count−1.
template <class Value>
void refine(std::vector<Enclosure>& enclosures, Index first, Index count, const Value& value) {
  for (Index k = 0; k < count; ++k) {
    Enclosure& enclosure = enclosures[static_cast<std::size_t>(first + k)];
    if (!settled(enclosure)) enclosure = enclose(value(k));
  }
}

void fill(std::vector<Enclosure>& enclosures, Index first, Index count, double value) {
  if (!enclosures.empty()) std::fill_n(enclosures.begin() + first, count, exactly(value));
}

// The state of certify(): the result so far, and what of it needs no more work.
class Certification {
 public:
  Certification(const Problem& problem, const Options& options, const Wanted& wanted)
      : problem_(problem),
        options_(options),
        wanted_(wanted),
        tokens_(detail::counted_tokens(problem, options)),
        equal_(tokens_.size()),
        grad_rows_(detail::weight_grad_rows(problem, wanted)),
        hidden_(problem.student_input.cols),
        valid_(valid_vocab(problem, options)) {
    const auto tokens = static_cast<std::size_t>(problem.tokens());
    const auto hidden = static_cast<std::size_t>(hidden_);
    result_.counted = static_cast<Index>(tokens_.size());
    result_.token_loss.assign(tokens, exactly(0));
    if (wanted.student_input_grad) result_.student_input_grad.assign(tokens * hidden, exactly(0));
    if (wanted.student_weight_grad)
      result_.student_weight_grad.assign(grad_rows_.size() * hidden, exactly(0));
    if (wanted.student_bias_grad)
      result_.student_bias_grad.assign(static_cast<std::size_t>(problem.vocab()), exactly(0));
    if (options.reduction != Reduction::none) result_.loss = exactly(0);
    if (tokens_.empty()) return;

    if (result_.loss) result_.loss = anything();
    for (Index t : tokens_) {
      result_.token_loss[static_cast<std::size_t>(t)] = anything();
      if (wanted.student_input_grad)
        std::fill_n(result_.student_input_grad.begin() + t * hidden_, hidden_, anything());
    }
    for_valid_rows([&](Index r) {
      std::fill_n(result_.student_weight_grad.begin() + r * hidden_, hidden_, anything());
    });
    if (wanted.student_bias_grad) std::fill_n(result_.student_bias_grad.begin(), valid_, anything());
  }

  bool done() const {
    return (!result_.loss || settled(*result_.loss)) && all_settled(result_.token_loss) &&
           all_settled(result_.student_input_grad) && all_settled(result_.student_weight_grad) &&
           all_settled(result_.student_bias_grad);
  }

  // Narrows what is not settled with intervals of this many digits.
  template <unsigned Digits>
  void refine_with() {
    if (done()) return;
    using Real = Interval<Digits>;
    using Row = detail::RowResult<Real>;
    const bool every_row = (result_.loss && !settled(*result_.loss)) ||
                           !all_settled(result_.student_weight_grad) ||
                           !all_settled(result_.student_bias_grad);
    std::vector<Index> needed;  // indices into tokens_
    for (Index i = 0; i < result_.counted; ++i)
      if (every_row || !row_settled(i)) needed.push_back(i);

    // Enough rows for all threads: one thread a row, and nothing is serial. Fewer: all threads inside a row.
    const bool by_row = static_cast<int>(needed.size()) >= thread_count();
    std::vector<Row> rows(tokens_.size());
    detail::for_each(by_row ? detail::Threads::all : detail::Threads::one, static_cast<Index>(needed.size()),
                     [&](Index n) {
                       const Index i = needed[static_cast<std::size_t>(n)];
                       rows[static_cast<std::size_t>(i)] =
                           evaluate<Real>(i, by_row ? detail::Threads::one : detail::Threads::all);
                     });
    if (std::any_of(equal_.begin(), equal_.end(), [](char equal) { return !equal; })) result_.digits = Digits;

    Sum<Real> sum;
    bool all_exist = true;
    std::vector<std::vector<Real>> dlogits(tokens_.size());
    for (Index i : needed) {
      Row& row = rows[static_cast<std::size_t>(i)];
      const Index t = tokens_[static_cast<std::size_t>(i)];
      if (row.exists) {
        refine(result_.token_loss, t, 1, [&](Index) { return row.loss; });
      } else {
        fill(result_.token_loss, t, 1, nan);
        fill(result_.student_input_grad, t * hidden_, hidden_, nan);
      }
      if (equal_[static_cast<std::size_t>(i)]) fill(result_.student_input_grad, t * hidden_, hidden_, 0);
      all_exist = all_exist && row.exists;
      sum.add(row.loss);
      dlogits[static_cast<std::size_t>(i)] = std::move(row.dlogits);
    }
    if (!all_exist) {
      if (result_.loss) result_.loss = exactly(nan);
      for_valid_rows([&](Index r) { fill(result_.student_weight_grad, r * hidden_, hidden_, nan); });
      fill(result_.student_bias_grad, 0, valid_, nan);
    }
    if (result_.loss && !settled(*result_.loss)) {
      result_.loss = enclose(
          Real(sum.value() / Real(static_cast<double>(reduction_divisor(options_, result_.counted)))));
    }
    if (wanted_.any_grad()) refine_gradients<Digits>(needed, dlogits);
  }

  CertifiedResult take() { return std::move(result_); }

 private:
  // body(r) for each row r of the weight gradient that belongs to an entry of the valid vocabulary.
  template <class Body>
  void for_valid_rows(const Body& body) const {
    for (std::size_t r = 0; r < grad_rows_.size(); ++r)
      if (grad_rows_[r] < valid_) body(static_cast<Index>(r));
  }

  bool row_settled(Index i) const {
    const Index t = tokens_[static_cast<std::size_t>(i)];
    if (!settled(result_.token_loss[static_cast<std::size_t>(t)])) return false;
    if (!wanted_.student_input_grad) return true;
    const auto first = result_.student_input_grad.begin() + t * hidden_;
    return std::all_of(first, first + hidden_, settled);
  }

  // The row of tokens_[i]. It is 0 throughout, without intervals, where p = q.
  template <class Real>
  detail::RowResult<Real> evaluate(Index i, detail::Threads threads) {
    const auto at = static_cast<std::size_t>(i);
    const detail::ExactRow row = detail::exact_row(problem_, options_, tokens_[at], threads);
    equal_[at] = detail::differs_by_constant(row);
    if (!equal_[at]) return detail::evaluate<Real>(row, options_, wanted_.any_grad(), threads);
    return {true, Real(0), std::vector<Real>(wanted_.any_grad() ? static_cast<std::size_t>(valid_) : 0)};
  }

  template <unsigned Digits>
  void refine_gradients(const std::vector<Index>& needed,
                        const std::vector<std::vector<Interval<Digits>>>& dlogits) {
    const detail::GradientEntries<Interval<Digits>> gradients(problem_, options_, tokens_, dlogits);
    if (wanted_.student_input_grad) {
      parallel_for(static_cast<Index>(needed.size()), [&](Index n) {
        const Index i = needed[static_cast<std::size_t>(n)];
        refine(result_.student_input_grad, tokens_[static_cast<std::size_t>(i)] * hidden_, hidden_,
               [&](Index h) { return gradients.input(i, h); });
      });
    }
    // Values past the valid vocabulary are settled from the start and are not asked for.
    if (wanted_.student_weight_grad) {
      parallel_for(static_cast<Index>(grad_rows_.size()), [&](Index r) {
        refine(result_.student_weight_grad, r * hidden_, hidden_,
               [&](Index h) { return gradients.weight(grad_rows_[static_cast<std::size_t>(r)], h); });
      });
    }
    if (wanted_.student_bias_grad) {
      parallel_for(valid_, [&](Index v) {
        refine(result_.student_bias_grad, v, 1, [&](Index) { return gradients.bias(v); });
      });
    }
  }

  const Problem& problem_;
  const Options& options_;
  const Wanted& wanted_;
  std::vector<Index> tokens_;     // those that are counted
  std::vector<char> equal_;       // of tokens_: p = q there, known exactly
  std::vector<Index> grad_rows_;  // vocabulary entry of each row of the weight gradient
  Index hidden_, valid_;
  CertifiedResult result_;
};

template <unsigned Digits>
void refine_token(const detail::ExactRow& row, const Options& options, detail::Threads threads,
                  Enclosure& enclosure) {
  if (settled(enclosure)) return;
  const auto result = detail::evaluate<Interval<Digits>>(row, options, false, threads);
  enclosure = result.exists ? enclose(result.loss) : exactly(nan);
}

}  // namespace

template <unsigned Digits>
Enclosure enclose(const Interval<Digits>& interval) {
  const mpfr_srcptr left = interval.backend().left_data(), right = interval.backend().right_data();
  if (mpfr_nan_p(left) || mpfr_nan_p(right)) return anything();
  Enclosure result{mpfr_get_d(left, MPFR_RNDD), mpfr_get_d(right, MPFR_RNDU),
                   decimal(left, Digits, MPFR_RNDD), decimal(right, Digits, MPFR_RNDU), std::nullopt};
  const double nearest = mpfr_get_d(left, MPFR_RNDN);
  if (nearest == mpfr_get_d(right, MPFR_RNDN)) result.rounds_to = nearest + 0.0;  // −0 is written 0
  return result;
}
template Enclosure enclose(const Interval<40>&);
template Enclosure enclose(const Interval<80>&);
template Enclosure enclose(const Interval<160>&);

CertifiedResult certify(const Problem& problem, const Options& options, const Wanted& wanted) {
  validate(problem, options);
  detail::validate(problem, wanted);
  Certification certification(problem, options, wanted);
  certification.refine_with<40>();
  certification.refine_with<80>();
  certification.refine_with<160>();
  return certification.take();
}

std::vector<Enclosure> certify_token_losses(const Problem& problem, const Options& options,
                                            const std::vector<Index>& tokens) {
  validate(problem, options);
  for (Index token : tokens) detail::validate_token(problem, token);
  std::vector<Enclosure> result(tokens.size(), exactly(0));
  const bool by_row = static_cast<int>(tokens.size()) >= thread_count();
  const auto certify_token = [&](Index i) {
    const auto at = static_cast<std::size_t>(i);
    if (!is_counted(problem, options, tokens[at])) return;
    const detail::Threads threads = by_row ? detail::Threads::one : detail::Threads::all;
    const detail::ExactRow row = detail::exact_row(problem, options, tokens[at], threads);
    if (detail::differs_by_constant(row)) return;
    result[at] = anything();
    refine_token<40>(row, options, threads, result[at]);
    refine_token<80>(row, options, threads, result[at]);
    refine_token<160>(row, options, threads, result[at]);
  };
  detail::for_each(by_row ? detail::Threads::all : detail::Threads::one, static_cast<Index>(tokens.size()),
                   certify_token);
  return result;
}

}  // namespace fljsd
