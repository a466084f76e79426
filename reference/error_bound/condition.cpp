// SPDX-License-Identifier: Apache-2.0
#include "reference/error_bound/condition.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/divergence.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// max over b in [0, 1] of b·(1−b)·log(1 + odds/b). The logarithm of that is a sum of concave functions of b
// (b·log(1 + odds/b) is a perspective), so there is one maximum. Golden section search finds it on a
// logarithmic scale: for small odds it lies near sqrt(odds/2).
double largest_two_point_deviation(double odds) {
  const auto value = [&](double log_b) {
    const double b = std::exp(log_b);
    return -b * std::expm1(log_b) * std::log1p(odds / b);
  };
  const double golden = (std::sqrt(5.0) - 1) / 2;
  double lo = -400, hi = 0;
  double left = hi - golden * (hi - lo), right = lo + golden * (hi - lo);
  double value_left = value(left), value_right = value(right);
  for (int i = 0; i < 80; ++i) {
    if (value_left < value_right) {
      lo = left, left = right, value_left = value_right;
      right = lo + golden * (hi - lo), value_right = value(right);
    } else {
      hi = right, right = left, value_right = value_left;
      left = hi - golden * (hi - lo), value_left = value(left);
    }
  }
  // The value is flat to 1e-15 where rounding ends the search.
  return std::max(value_left, value_right) * (1 + 1e-12);
}

// log Σ prob·e^change: how far a log-sum-exp may move.
double shift(std::span<const double> log_prob, std::span<const double> change) {
  double largest = 0, largest_sum = -infinity;
  for (std::size_t v = 0; v < log_prob.size(); ++v) {
    if (log_prob[v] == -infinity) continue;
    largest = std::max(largest, change[v]);
    largest_sum = std::max(largest_sum, log_prob[v] + change[v]);
  }
  if (!(largest_sum < infinity)) return infinity;
  double sum = 0;
  if (largest <= 1) {
    for (std::size_t v = 0; v < log_prob.size(); ++v)
      if (log_prob[v] > -infinity) sum += std::exp(log_prob[v]) * std::expm1(change[v]);
    return std::log1p(sum);
  }
  for (std::size_t v = 0; v < log_prob.size(); ++v)
    if (log_prob[v] > -infinity) sum += std::exp(log_prob[v] + change[v] - largest_sum);
  return std::max(0.0, largest_sum + std::log(sum)) + 1e-15;
}

// log(p_v/M_v) = −log(beta + (1−beta)·e^{−d}). Below 2^-53 beta must not be handed on as 1 − beta, which
// would be 1: an endpoint.
double log_p_over_m(const LogRatio<double>& entry, double beta) {
  if (beta == 0 || 1 - beta < 1) return log_q_over_m(entry.swapped(), 1 - beta);
  const double a = std::log(beta), b = -entry.d;  // log(beta + e^{−d}): 1 − beta and 1 are the same double
  return -(std::max(a, b) + std::log1p(std::exp(-std::abs(a - b))));
}

double largest_change(std::span<const double> log_prob, std::span<const double> change) {
  double largest = 0;
  for (std::size_t v = 0; v < log_prob.size(); ++v)
    if (log_prob[v] > -infinity) largest = std::max(largest, change[v]);
  return largest;
}

// bound[v] >= |change of g_v| for one side, uncapped: weight·prob·[(e^eta − 1)·|score − mean| + e^eta·(zeta +
// K)] with zeta = rho·min(1, slope·e^rho) and K = Σ prob·[(e^eta − 1)·|score − mean| + e^eta·zeta].
void side_change(const RowCondition::Side& side, std::span<const double> log_prob,
                 std::span<const double> eta, std::span<const double> other, std::span<double> bound) {
  double mean_change = 0;  // K
  for (std::size_t v = 0; v < bound.size(); ++v) {
    bound[v] = 0;
    if (log_prob[v] == -infinity) continue;
    const double most = grown(log_prob[v], eta[v]);
    if (most == 0) continue;
    bound[v] = rise(log_prob[v], eta[v]) * std::abs(side.score[v] - side.mean_score) +
               most * score_change(side.slope[v], eta[v] + other[v]);
    mean_change += bound[v];
  }
  for (std::size_t v = 0; v < bound.size(); ++v) {
    const double most = log_prob[v] > -infinity ? grown(log_prob[v], eta[v]) : 0;
    bound[v] = most == 0 ? 0 : side.weight * (bound[v] + most * mean_change);
  }
}

// At its own endpoint a model's gradient is prob − other_prob.
void endpoint_change(std::span<const double> log_prob, std::span<const double> eta,
                     std::span<const double> log_other, std::span<const double> theta,
                     std::span<double> bound) {
  for (std::size_t v = 0; v < bound.size(); ++v) {
    bound[v] = (log_prob[v] > -infinity ? rise(log_prob[v], eta[v]) : 0) +
               (log_other[v] > -infinity ? rise(log_other[v], theta[v]) : 0);
  }
}

void student_change(const RowCondition& row, const RatioChange& ratio, std::span<double> bound) {
  if (row.beta == 0)
    endpoint_change(row.log_q, ratio.student, row.log_p, ratio.teacher, bound);
  else
    side_change(row.student, row.log_q, ratio.student, ratio.teacher, bound);
}

void teacher_change(const RowCondition& row, const RatioChange& ratio, std::span<double> bound) {
  if (row.beta == 1)
    endpoint_change(row.log_p, ratio.teacher, row.log_q, ratio.student, bound);
  else
    side_change(row.teacher, row.log_p, ratio.teacher, ratio.student, bound);
}

}  // namespace

double grown(double log_prob, double eta) {
  return std::exp(std::min(0.0, log_prob + eta));
}

double rise(double log_prob, double eta) {
  return eta <= 1 ? std::exp(log_prob) * std::expm1(eta) : grown(log_prob, eta);
}

double score_change(double slope, double rho) {
  return slope == 0 ? 0 : rho * std::min(1.0, slope * std::exp(std::min(rho, 700.0)));
}

double binary_entropy(double beta) {
  if (beta == 0 || beta == 1) return 0;
  return -beta * std::log(beta) - (1 - beta) * std::log1p(-beta);  // for tiny beta 1 − beta would be 1
}

double student_lipschitz(double beta) {
  if (beta == 0) return 2;
  if (beta == 1) return infinity;
  return 2 * (1 - beta) * largest_two_point_deviation(beta / (1 - beta));
}

double teacher_lipschitz(double beta) {
  if (beta == 1) return 2;
  if (beta == 0) return infinity;
  return 2 * beta * largest_two_point_deviation((1 - beta) / beta);
}

RowCondition::RowCondition(std::span<const double> x, std::span<const double> y, double beta_) : beta(beta_) {
  std::vector<double> log_larger(x.begin(), x.end()), d(y.begin(), y.end());
  has_distribution_ = normalise(std::span<double>(log_larger), std::span<double>(d));
  if (!has_distribution_) return;
  const std::size_t n = x.size();
  divergence = fljsd::divergence(std::span<const double>(log_larger), std::span<const double>(d), beta);
  log_q.resize(n), log_p.resize(n);
  for (Side* side : {&student, &teacher}) {
    side->prob.resize(n), side->score.resize(n), side->slope.resize(n), side->grad.resize(n);
  }
  student.weight = beta == 1 ? 1 : 1 - beta;
  teacher.weight = beta == 0 ? 1 : beta;
  for (std::size_t v = 0; v < n; ++v) {
    const LogRatio<double> entry{log_larger[v], d[v]};
    const bool p_larger = d[v] > 0;
    log_q[v] = p_larger ? log_larger[v] - d[v] : log_larger[v];
    log_p[v] = p_larger ? log_larger[v] : log_larger[v] + d[v];
    if (entry.empty()) log_q[v] = log_p[v] = -infinity;
    student.prob[v] = entry.empty() ? 0 : entry.q();
    teacher.prob[v] = entry.empty() ? 0 : entry.p();
    student.score[v] = log_q[v] > -infinity ? log_q_over_m(entry, beta) : 0;
    teacher.score[v] = log_p[v] > -infinity ? log_p_over_m(entry, beta) : 0;
    // sigma = beta·p/M, and 1 − sigma from the other side so that neither loses its small values.
    student.slope[v] = beta == 0 ? 0 : 1 / (1 + (1 - beta) / beta * std::exp(-d[v]));
    teacher.slope[v] = beta == 1 ? 0 : 1 / (1 + beta / (1 - beta) * std::exp(d[v]));
    if (beta > 0 && beta < 1 && log_q[v] > -infinity)
      overlap += (1 - beta) * student.prob[v] * student.slope[v];
  }
  for (auto [side, log_prob] : {std::pair{&student, &log_q}, std::pair{&teacher, &log_p}}) {
    for (std::size_t v = 0; v < n; ++v)
      if ((*log_prob)[v] > -infinity && side->prob[v] > 0) side->mean_score += side->prob[v] * side->score[v];
  }
  for (std::size_t v = 0; v < n; ++v) {
    const LogRatio<double> entry{log_larger[v], d[v]};
    student.grad[v] = gradient_term(entry, beta, student.mean_score);
    teacher.grad[v] = beta == 1 ? gradient_term(entry.swapped(), 0.0, teacher.mean_score)
                                : teacher.weight * teacher.prob[v] * (teacher.score[v] - teacher.mean_score);
    student_grad_norm += std::abs(student.grad[v]);
    teacher_grad_norm += std::abs(teacher.grad[v]);
  }
}

RatioChange ratio_change(const RowCondition& row, const LogitChange& change) {
  RatioChange ratio;
  ratio.student_shift = shift(row.log_q, change.student);
  ratio.teacher_shift = shift(row.log_p, change.teacher);
  ratio.student.resize(row.size()), ratio.teacher.resize(row.size());
  for (std::size_t v = 0; v < row.size(); ++v) {
    // A probability of 0 stays 0.
    ratio.student[v] = row.log_q[v] > -infinity ? change.student[v] + ratio.student_shift : 0;
    ratio.teacher[v] = row.log_p[v] > -infinity ? change.teacher[v] + ratio.teacher_shift : 0;
  }
  return ratio;
}

double divergence_change(const RowCondition& row, const LogitChange& change, const RatioChange& ratio) {
  // |dD/dlogit| along the straight path is at most |g| + t-fraction of the path times its bound at the end
  // (the bound is star-shaped in the size of the perturbation as long as rise() is not capped).
  bool uncapped = true;
  for (std::size_t v = 0; v < row.size(); ++v)
    uncapped = uncapped && (ratio.student[v] <= 1 || grown(row.log_q[v], ratio.student[v]) == 0) &&
               (ratio.teacher[v] <= 1 || grown(row.log_p[v], ratio.teacher[v]) == 0);
  const double share = uncapped ? 0.5 : 1;
  std::vector<double> bound(row.size());
  double total = 0;
  student_change(row, ratio, bound);
  for (std::size_t v = 0; v < bound.size(); ++v)
    if (row.log_q[v] > -infinity || row.beta == 0)
      total += (std::abs(row.student.grad[v]) + share * bound[v]) *
               (row.log_q[v] > -infinity ? change.student[v] : 0);
  teacher_change(row, ratio, bound);
  for (std::size_t v = 0; v < bound.size(); ++v)
    if (row.log_p[v] > -infinity)
      total += (std::abs(row.teacher.grad[v]) + share * bound[v]) * change.teacher[v];
  if (row.beta == 0 || row.beta == 1) return std::isnan(total) ? infinity : total;

  const double limit = std::max(row.divergence, binary_entropy(row.beta) - row.divergence);
  const double lipschitz = student_lipschitz(row.beta) * largest_change(row.log_q, change.student) +
                           teacher_lipschitz(row.beta) * largest_change(row.log_p, change.teacher);
  // Written so that NaN (0·inf for a perturbation without bound) loses against the limits.
  double best = limit;
  if (lipschitz < best) best = lipschitz;
  if (total < best) best = total;
  return best;
}

double divergence_change(const RowCondition& row, const LogitChange& change) {
  return divergence_change(row, change, ratio_change(row, change));
}

void gradient_change(const RowCondition& row, const RatioChange& ratio, std::span<double> bound) {
  student_change(row, ratio, bound);
  // |dD/dx_v| is at most half of ‖dD/dx‖₁, because the gradient's elements add up to 0.
  const double most = row.beta == 1 ? infinity : student_lipschitz(row.beta) / 2;
  for (std::size_t v = 0; v < bound.size(); ++v) {
    if (std::isnan(bound[v])) bound[v] = infinity;
    bound[v] = std::min(bound[v], std::abs(row.student.grad[v]) + most);
  }
}

void gradient_change(const RowCondition& row, const LogitChange& change, std::span<double> bound) {
  gradient_change(row, ratio_change(row, change), bound);
}

}  // namespace fljsd
