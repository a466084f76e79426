// SPDX-License-Identifier: Apache-2.0
// The state of one token: what a sweep over the vocabulary keeps, in any order and any pieces.
//
//   Sx = Σ e^{x_v − max_x},  Sy = Σ e^{y_v − max_y},  Φ_k = Σ e^{(x_v − max_x + y_v − max_y)/2}·e^{i w_k (r_v
//   − ρ)}
//
// with r_v = y_v − x_v and w_k = 2πk/period. Every term has modulus at most 1. When a maximum rises by Δ the
// old sums are multiplied by e^{−Δ} or e^{−Δ/2}: a real factor, because the phases do not refer to the maxima
// but to ρ, a constant of the row fixed when both rows have shown their first finite logit. (Referred to the
// maxima, every Φ_k would also have to be turned by its own angle.) Any ρ gives the same |Φ_k|; one close to
// the r_v keeps the angles small.
//
// An entry with x_v or y_v = −inf has no share in Φ. See docs/one_pass.md, sections 3 and 7.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/chernoff/accumulator.h"
#include "reference/chernoff/integrand.h"
#include "reference/chernoff/phases.h"
#include "reference/chernoff/quadrature.h"

namespace fljsd {

// The sums of a state, in the precision in which results are formed.
template <class Real>
struct ChernoffSums {
  bool valid = true;              // no NaN and no +inf was seen
  Real max_x = 0, max_y = 0;      // what Sx, Sy and the moduli of Φ refer to; −inf: no finite logit
  Real sum_x = 0, sum_y = 0;      // Sx, Sy
  Real phase_x = 0, phase_y = 0;  // ρ = phase_y − phase_x; meaningless while Φ is 0
  std::vector<Real> real, imag;   // Φ_k, [K+1]
};

// Results of one token, in nats. All NaN for a row in which a model has no distribution.
template <class Real>
struct ChernoffResult {
  Real divergence;            // D
  Real kappa;                 // Σ_v q_v·ln(1 + e^{s_v})
  Real student_kl;            // KL(q‖M) = −ln(1−beta) − kappa
  Real teacher_kl;            // KL(p‖M)
  Real log_sum_x, log_sum_y;  // ln Sx, ln Sy
};

// The rule applied to the sums, as it comes out.
template <class Real>
ChernoffResult<Real> apply_rule(const ChernoffSums<Real>& sums, const Quadrature& quadrature) {
  using std::cos, std::log, std::log1p, std::sin, std::sqrt;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (!sums.valid || sums.max_x == -infinity || sums.max_y == -infinity) {
    const Real nan = std::numeric_limits<double>::quiet_NaN();
    return {nan, nan, nan, nan, nan, nan};
  }
  const Real beta = quadrature.beta, rest = 1 - beta;
  const Real surprise_p = -log(beta), surprise_q = -log1p(Real(-beta));
  const Real log_x = log(sums.sum_x), log_y = log(sums.sum_y);
  // s_v = (r_v − ρ) + tau. Differences of maxima first: an offset common to all logits of a row has left by
  // then.
  const Real tau = ((sums.phase_y - sums.phase_x) - (sums.max_y - sums.max_x)) + (log_x - log_y) +
                   (surprise_q - surprise_p);
  Real divergence = 0, student = 0, teacher = 0;
  for (std::size_t k = 0; k < sums.real.size(); ++k) {
    const Real turns = drop_whole_turns(Real(static_cast<double>(k) * (tau / quadrature.period)));
    const Real c = cos(2 * pi_of<Real>() * turns), s = sin(2 * pi_of<Real>() * turns);
    const Real real = sums.real[k] * c - sums.imag[k] * s, imag = sums.real[k] * s + sums.imag[k] * c;
    divergence += quadrature.divergence[k] * real;
    student += quadrature.student_kl[k].real() * real - quadrature.student_kl[k].imag() * imag;
    teacher += quadrature.teacher_kl[k].real() * real - quadrature.teacher_kl[k].imag() * imag;
  }
  const Real size = sqrt(sums.sum_x) * sqrt(sums.sum_y);
  const Real kappa = sqrt(beta / rest) * (student / size);
  return {beta * surprise_p + rest * surprise_q - sqrt(beta * rest) * (divergence / size),
          kappa,
          surprise_q - kappa,
          surprise_p - sqrt(rest / beta) * (teacher / size),
          log_x,
          log_y};
}

// The results of a token: each value is moved into the interval where the true one lies, 0 <= D <= h(beta),
// 0 <= KL(q‖M) <= −ln(1−beta), 0 <= KL(p‖M) <= −ln(beta). That brings none further from the truth.
template <class Real>
ChernoffResult<Real> finalise(const ChernoffSums<Real>& sums, const Quadrature& quadrature) {
  using std::log, std::log1p;
  ChernoffResult<Real> result = apply_rule(sums, quadrature);
  const auto clamp = [](const Real& value, const Real& most) {
    return value < 0 ? Real(0) : value > most ? most : value;  // NaN stays
  };
  const Real beta = quadrature.beta, surprise_p = -log(beta), surprise_q = -log1p(Real(-beta));
  result.divergence = clamp(result.divergence, Real(beta * surprise_p + (1 - beta) * surprise_q));
  result.kappa = clamp(result.kappa, surprise_q);
  result.student_kl = surprise_q - result.kappa;
  result.teacher_kl = clamp(result.teacher_kl, surprise_p);
  return result;
}

template <class Real>
class ChernoffState {
 public:
  ChernoffState(int last_frequency, double period, PhaseMethod method = PhaseMethod::sincos,
                MergeSum merge = MergeSum::compensated)
      : period_(period),
        method_(method),
        merge_(merge),
        real_(static_cast<std::size_t>(last_frequency) + 1),
        imag_(real_.size()),
        scratch_{std::vector<Real>(real_.size()), std::vector<Real>(real_.size())},
        wide_scratch_{std::vector<Wide<Real>>(real_.size()), std::vector<Wide<Real>>(real_.size())} {}

  // One vocabulary entry. −inf is probability 0; NaN and +inf leave the row without a distribution.
  void add(const Real& x, const Real& y) {
    using std::exp;
    if (!(x < infinity) || !(y < infinity)) valid_ = false;
    if (!valid_) return;
    raise(std::max(x, max_x_), std::max(y, max_y_));
    const Real from_x = x - max_x_, from_y = y - max_y_;  // NaN only where unused
    const Real root_x = x > -infinity ? Real(exp(from_x / 2)) : Real(0);
    const Real root_y = y > -infinity ? Real(exp(from_y / 2)) : Real(0);
    sum_x_.add(root_x * root_x, merge_);
    sum_y_.add(root_y * root_y, merge_);
    if (!(x > -infinity && y > -infinity)) return;
    fix_phase();
    const Real modulus = root_x * root_y;
    const Real turns =
        drop_whole_turns(Real((from_y - from_x) / static_cast<Real>(period_) + turns_of_maxima()));
    form_phases(method_, turns, scratch_);
    for (std::size_t k = 0; k < real_.size(); ++k) {
      real_[k].add(modulus * scratch_.cosine[k], merge_);
      imag_[k].add(modulus * scratch_.sine[k], merge_);
    }
  }

  // Adds the entries of another state of the same frequencies; they must be disjoint from those of this one.
  void merge(const ChernoffState& other) {
    using std::exp;
    valid_ = valid_ && other.valid_;
    if (!valid_) return;
    raise(std::max(max_x_, other.max_x_), std::max(max_y_, other.max_y_));
    const auto share = [](const Real& from, const Real& to) {
      return from > -infinity ? Wide<Real>(exp(Wide<Real>(from) - Wide<Real>(to))) : Wide<Real>(0);
    };
    sum_x_.add_wide(share(other.max_x_, max_x_) * other.sum_x_.value(), merge_);
    sum_y_.add_wide(share(other.max_y_, max_y_) * other.sum_y_.value(), merge_);
    if (!other.has_phase_) return;
    if (!has_phase_) {
      has_phase_ = true;
      phase_x_ = other.phase_x_;
      phase_y_ = other.phase_y_;
    }
    const Wide<Real> fall =
        (Wide<Real>(other.max_x_) - Wide<Real>(max_x_)) + (Wide<Real>(other.max_y_) - Wide<Real>(max_y_));
    const Wide<Real> factor = exp(fall / 2);
    // From the other's ρ to this one's.
    const Wide<Real> turn = (other.rho() - rho()) / Wide<Real>(period_);
    form_phases(PhaseMethod::sincos, drop_whole_turns(turn), wide_scratch_);
    for (std::size_t k = 0; k < real_.size(); ++k) {
      const Wide<Real> re = factor * other.real_[k].value(), im = factor * other.imag_[k].value();
      const Wide<Real>&c = wide_scratch_.cosine[k], &s = wide_scratch_.sine[k];
      real_[k].add_wide(re * c - im * s, merge_);
      imag_[k].add_wide(re * s + im * c, merge_);
    }
  }

  ChernoffSums<Wide<Real>> sums() const {
    ChernoffSums<Wide<Real>> result;
    result.valid = valid_;
    result.max_x = max_x_;
    result.max_y = max_y_;
    result.sum_x = sum_x_.value();
    result.sum_y = sum_y_.value();
    if (has_phase_) {
      result.phase_x = phase_x_;
      result.phase_y = phase_y_;
    } else {
      result.phase_x = max_x_;  // Φ is 0: any finite reference will do
      result.phase_y = max_y_;
    }
    for (std::size_t k = 0; k < real_.size(); ++k) {
      result.real.push_back(real_[k].value());
      result.imag.push_back(imag_[k].value());
    }
    return result;
  }

 private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  Wide<Real> rho() const { return Wide<Real>(phase_y_) - Wide<Real>(phase_x_); }

  // Makes max_x, max_y the reference of all sums.
  void raise(const Real& max_x, const Real& max_y) {
    using std::exp;
    const Wide<Real> fall_x =
        max_x > max_x_ && max_x_ > -infinity ? Wide<Real>(max_x_) - Wide<Real>(max_x) : Wide<Real>(0);
    const Wide<Real> fall_y =
        max_y > max_y_ && max_y_ > -infinity ? Wide<Real>(max_y_) - Wide<Real>(max_y) : Wide<Real>(0);
    max_x_ = max_x;
    max_y_ = max_y;
    if (fall_x == 0 && fall_y == 0) return;
    if (fall_x < 0) sum_x_.scale(exp(fall_x), merge_);
    if (fall_y < 0) sum_y_.scale(exp(fall_y), merge_);
    const Wide<Real> factor = exp((fall_x + fall_y) / 2);
    for (std::size_t k = 0; k < real_.size(); ++k) {
      real_[k].scale(factor, merge_);
      imag_[k].scale(factor, merge_);
    }
  }

  void fix_phase() {
    if (has_phase_) return;
    has_phase_ = true;
    phase_x_ = max_x_;
    phase_y_ = max_y_;
  }

  // The angle from r − ρ to (y − max_y) − (x − max_x): 0 until a maximum rises above its first value.
  Real turns_of_maxima() const {
    const Wide<Real> gap = (Wide<Real>(max_y_) - Wide<Real>(max_x_)) - rho();
    return static_cast<Real>(drop_whole_turns(Wide<Real>(gap / Wide<Real>(period_))));
  }

  double period_;
  PhaseMethod method_;
  MergeSum merge_;
  bool valid_ = true, has_phase_ = false;
  Real max_x_ = -infinity, max_y_ = -infinity;
  Real phase_x_ = 0, phase_y_ = 0;
  Accumulator<Real> sum_x_, sum_y_;
  std::vector<Accumulator<Real>> real_, imag_;
  Phases<Real> scratch_;
  Phases<Wide<Real>> wide_scratch_;
};

}  // namespace fljsd
