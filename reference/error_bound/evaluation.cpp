// SPDX-License-Identifier: Apache-2.0
#include "reference/error_bound/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/divergence.h"
#include "reference/error_bound/sum_error.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Rounding errors of one elementary function, in units of u. Correctly rounded it is 1; the C library stays
// below 2; the fast exp2 and log2 of GPUs are within 4 and 6 (CUDA programming guide, 2^-22 and 2^-21.4 in
// fp32).
constexpr double elementary = 8;

// How far log q_v and log p_v of a textbook evaluation are off, and by how much more their exponentials.
struct LogError {
  std::vector<double> log;  // of the computed log q_v
  std::vector<double> exp;  // exp(log q_v) has this much relative error on top
};

// Σ prob·value for the probabilities of the row really used, which are at most `grown` and add up to 1.
double mean(const std::vector<double>& grown_prob, const std::vector<double>& value) {
  double sum = 0, largest = 0;
  for (std::size_t v = 0; v < value.size(); ++v) {
    if (grown_prob[v] == 0) continue;
    sum += grown_prob[v] * value[v];
    largest = std::max(largest, value[v]);
  }
  return std::min(sum, largest);
}

// log q_v = a − log Σ with a = x_v − max; |a| + |log Σ| = |log q_v|. Forming a costs u·|a|; the exponential
// its own error and, where e^a is 2^(a·log2 e), the roundings of the constant and of the product, u·|a| each.
// The logarithm is off by 8u + 3u·|log Σ|, the last difference by u·|log q_v|.
LogError log_error(const std::vector<double>& log_prob, const std::vector<double>& eta,
                   const std::vector<double>& grown_prob, const FormulaArithmetic& arithmetic) {
  const double u = arithmetic.unit;
  const std::size_t n = log_prob.size();
  LogError error{std::vector<double>(n), std::vector<double>(n)};
  for (std::size_t v = 0; v < n; ++v)
    if (log_prob[v] > -infinity) error.exp[v] = u * (elementary + 3 * (std::abs(log_prob[v]) + eta[v]));
  // Relative error of Σ e^{x − max}.
  const double log_sum = mean(grown_prob, error.exp) + sum_error(grown_prob, u, arithmetic.lambda);
  for (std::size_t v = 0; v < n; ++v) {
    if (log_prob[v] == -infinity) continue;
    const double magnitude = std::abs(log_prob[v]) + eta[v];
    error.log[v] =
        u * (elementary + 4 * magnitude) + log_sum + arithmetic.log_probability_storage * magnitude;
  }
  return error;
}

// One model's half of a textbook evaluation.
struct SideError {
  double divergence = 0;                 // error of weight·Σ prob·score, sum over the vocabulary excepted
  std::vector<double> magnitude;         // |terms| of that sum
  std::vector<double> score, deviation;  // error of score_v; largest |score_v − mean|
  double mean = 0;                       // error of the mean score
  double mean_magnitude = 0;
};

SideError side_error(const RowCondition::Side& side, const std::vector<double>& log_prob,
                     const std::vector<double>& eta, const std::vector<double>& theta,
                     const std::vector<double>& grown_prob, const LogError& own, const LogError& other,
                     double log_odds, bool endpoint, const FormulaArithmetic& arithmetic) {
  const double u = arithmetic.unit;
  const std::size_t n = log_prob.size();
  SideError error;
  error.magnitude.resize(n), error.score.resize(n), error.deviation.resize(n);
  std::vector<double> term(n), weighted(n);
  const double log_weight = std::abs(std::log(side.weight));
  double mean_change = 0, lost = 0;  // lost: to underflow of probabilities and terms
  for (std::size_t v = 0; v < n; ++v) {
    if (grown_prob[v] == 0) continue;
    const double rho = eta[v] + theta[v];
    const double log_ratio = own.log[v] + other.log[v];
    const double moved = score_change(side.slope[v], rho);
    const double deviation = std::abs(side.score[v] - side.mean_score);
    mean_change += rise(log_prob[v], eta[v]) * deviation + grown_prob[v] * moved;
    const double score = std::abs(side.score[v]) + moved;
    const double factor = own.log[v] + own.exp[v];
    const double ratio_error = score_change(std::min(1.0, side.slope[v] * std::exp(std::min(rho, 700.0))),
                                            log_ratio + elementary * u * log_odds);
    const double rounding = elementary * u * (1 + std::abs(log_prob[v]) + eta[v] + score);
    // At an endpoint M is one of p and q, so an error of the other's logarithm does not cancel.
    term[v] = (score + ratio_error) * factor * std::exp(std::min(factor, 700.0)) + rounding +
              (endpoint ? ratio_error : 0);
    error.magnitude[v] = side.weight * grown_prob[v] * (score + log_weight);
    error.score[v] = ratio_error + rounding + arithmetic.log_probability_storage * score;
    error.deviation[v] = deviation + moved;
    lost += arithmetic.smallest * (1 + score);
    weighted[v] = (score + ratio_error) * factor * std::exp(std::min(factor, 700.0)) + error.score[v];
  }
  error.divergence = side.weight * mean(grown_prob, term) + lost;
  error.mean_magnitude = std::abs(side.mean_score) + mean_change;
  for (double& deviation : error.deviation) deviation += mean_change;
  error.mean =
      mean(grown_prob, weighted) + lost + sum_error(error.magnitude, u, arithmetic.lambda) / side.weight;
  return error;
}

double textbook_error(const EvaluatedRow& evaluated, const FormulaArithmetic& arithmetic,
                      std::span<double> gradient) {
  const RowCondition& row = evaluated.row;
  const RatioChange& ratio = evaluated.ratio;
  const double u = arithmetic.unit, storage = arithmetic.log_probability_storage;
  const std::size_t n = row.size();
  std::vector<double> q(n), p(n);
  for (std::size_t v = 0; v < n; ++v) {
    q[v] = row.log_q[v] > -infinity ? grown(row.log_q[v], ratio.student[v]) : 0;
    p[v] = row.log_p[v] > -infinity ? grown(row.log_p[v], ratio.teacher[v]) : 0;
  }
  const bool endpoint = row.beta == 0 || row.beta == 1;
  // beta is handed over in the arithmetic's format, and 1 − beta may be formed from that: beta is off by
  // u·beta, the weight 1 − beta by the factor beta_error, and log M by u·beta·|p − q|/M, at most
  // u·slope + beta_error·(1 − slope). D does not notice: Σ M is 1, whatever beta is.
  const double beta_error = endpoint ? 0 : u * row.beta / (1 - row.beta);
  const LogError q_error = log_error(row.log_q, ratio.student, q, arithmetic);
  const LogError p_error = log_error(row.log_p, ratio.teacher, p, arithmetic);
  const double log_odds = endpoint ? 0 : std::abs(std::log(row.beta)) + std::abs(std::log1p(-row.beta));

  double divergence = 0;
  std::vector<double> magnitude(n);
  SideError student;
  if (row.beta != 0) {
    student = side_error(row.student, row.log_q, ratio.student, ratio.teacher, q, q_error, p_error, log_odds,
                         endpoint, arithmetic);
    divergence += student.divergence;
    if (!endpoint) {
      std::vector<double> log_mixture(n);
      for (std::size_t v = 0; v < n; ++v) {
        log_mixture[v] = u * row.student.slope[v] + beta_error * (1 - row.student.slope[v]);
        student.score[v] += log_mixture[v];
      }
      student.mean += mean(q, log_mixture);
    }
    for (std::size_t v = 0; v < n; ++v) magnitude[v] += student.magnitude[v];
  }
  if (row.beta != 1) {
    const SideError teacher = side_error(row.teacher, row.log_p, ratio.teacher, ratio.student, p, p_error,
                                         q_error, log_odds, endpoint, arithmetic);
    divergence += teacher.divergence;
    for (std::size_t v = 0; v < n; ++v) magnitude[v] += teacher.magnitude[v];
  }
  divergence += sum_error(magnitude, u, arithmetic.lambda);
  if (!endpoint) divergence += arithmetic.approximation;

  // At beta = 0 differentiation forms q·Σ p − p, and the sum of the p as they are stored is not quite 1.
  double sum_of_p = 0;
  if (row.beta == 0) {
    std::vector<double> relative(n);
    for (std::size_t v = 0; v < n; ++v)
      relative[v] = std::expm1(p_error.log[v] + p_error.exp[v] + elementary * u + storage);
    sum_of_p = mean(p, relative) + sum_error(p, u, arithmetic.lambda);
  }
  for (std::size_t v = 0; v < n; ++v) {
    const double q_relative = q_error.log[v] + q_error.exp[v] + elementary * u + storage;
    if (row.beta == 0) {
      gradient[v] = q[v] * (std::expm1(q_relative) + std::exp(q_relative) * sum_of_p) +
                    p[v] * std::expm1(p_error.log[v] + p_error.exp[v] + elementary * u + storage) +
                    2 * arithmetic.smallest;
    } else if (row.log_q[v] == -infinity) {
      gradient[v] = 0;
    } else {
      // weight·q·(score − mean): an error of log q scales the difference; exp and storage may hit the two
      // parts one by one.
      const double parts = std::abs(row.student.score[v]) + student.mean_magnitude;
      gradient[v] = arithmetic.smallest * (1 + parts);
      if (q[v] == 0) continue;
      const double relative = student.deviation[v] * (q_error.log[v] + beta_error) +
                              parts * (q_error.exp[v] + elementary * u + storage) + student.score[v] +
                              student.mean;
      gradient[v] += row.student.weight * q[v] * std::exp(std::min(q_relative, 700.0)) * relative;
      if (!endpoint) gradient[v] += q[v] * arithmetic.approximation;
    }
  }
  return divergence;
}

// What difference_of_gaps() rounds, in units of u, its last subtraction excepted: the two differences that it
// subtracts. Where both orders form numbers of about the same size, either may have been taken.
double gap_magnitude(double x, double y, double base_x, double base_y) {
  const double across = std::abs(y - x), across_bases = std::abs(base_y - base_x);
  const double within_x = std::abs(x - base_x), within_y = std::abs(y - base_y);
  constexpr double clear = 1 + 0x1p-20;
  const double across_size = std::max(across, across_bases), within_size = std::max(within_x, within_y);
  if (across_size > clear * within_size) return within_x + within_y;
  if (within_size > clear * across_size) return across + across_bases;
  return std::max(across + across_bases, within_x + within_y);
}

// How far log_larger and d of normalise() are off, in float64.
struct NormalisedError {
  std::vector<double> log_q, log_p, d;
};

NormalisedError normalised_error(const EvaluatedRow& evaluated, double u) {
  const RowCondition& row = evaluated.row;
  const std::size_t n = row.size();
  const double count = static_cast<double>(n);
  const auto one_model = [&](const std::vector<double>& log_prob) {
    // Relative error of Σ e^{x − max}: each exponential 2u and its argument's rounding, a compensated sum;
    // then the logarithm.
    double log_sum = 4 * u + count * u * u, smallest = infinity;
    for (double l : log_prob) {
      if (l == -infinity) continue;
      log_sum += std::exp(l) * u * (2 + std::abs(l));
      smallest = std::min(smallest, std::abs(l));
    }
    log_sum += 2 * u * (1 + smallest);  // log Σ e^{x − max} = −log prob of the largest entry
    std::vector<double> error(n);
    for (std::size_t v = 0; v < n; ++v)
      if (log_prob[v] > -infinity) error[v] = 2 * u * std::abs(log_prob[v]) + log_sum;
    return std::pair{error, log_sum};
  };
  auto [log_q, q_sum] = one_model(row.log_q);
  auto [log_p, p_sum] = one_model(row.log_p);

  // The branches of normalise(): one shift for rows that differ by nearly a constant.
  const auto finite_x = [&](std::size_t v) { return row.log_q[v] > -infinity; };
  const auto finite_y = [&](std::size_t v) { return row.log_p[v] > -infinity; };
  std::size_t top_x = n, top_y = n;
  for (std::size_t v = 0; v < n; ++v) {
    if (finite_x(v) && (top_x == n || evaluated.x[v] > evaluated.x[top_x])) top_x = v;
    if (finite_y(v) && (top_y == n || evaluated.y[v] > evaluated.y[top_y])) top_y = v;
  }
  const auto close_gap = [&](std::size_t v) {
    return std::abs(
        difference_of_gaps(evaluated.x[v], evaluated.y[v], evaluated.x[top_x], evaluated.y[top_x]));
  };
  const auto close_magnitude = [&](std::size_t v) {
    return gap_magnitude(evaluated.x[v], evaluated.y[v], evaluated.x[top_x], evaluated.y[top_x]);
  };
  bool close = finite_y(top_x);
  for (std::size_t v = 0; v < n && close; ++v)
    close = finite_x(v) == finite_y(v) && (!finite_x(v) || close_gap(v) <= 1.001);
  // A row at the edge of "close" may have been evaluated either way: such a row gets the larger bound.
  bool surely_close = close;
  for (std::size_t v = 0; v < n && surely_close; ++v) surely_close = !finite_x(v) || close_gap(v) <= 0.999;

  double close_shift = 0, far_shift = 0;
  if (close) {
    for (std::size_t v = 0; v < n; ++v) {
      if (!finite_x(v)) continue;
      const double w = close_gap(v);
      // e^{|w|} − 1 <= 1.72·|w| for |w| <= 1, relative to the same probability on the other side
      close_shift += std::exp(row.log_p[v]) * (u * (close_magnitude(v) + w) +
                                               1.75 * w * (log_q[v] + u * (6 + std::abs(row.log_q[v]))));
    }
    const double shift = finite_y(top_x) ? std::abs(row.log_p[top_x] - row.log_q[top_x]) : 0;
    close_shift += 4 * u * shift;
  }
  if (!surely_close) {
    far_shift = q_sum + p_sum + 2 * u * (std::abs(row.log_q[top_x]) + std::abs(row.log_p[top_y]));
  }

  NormalisedError error{std::move(log_q), std::move(log_p), std::vector<double>(n)};
  for (std::size_t v = 0; v < n; ++v) {
    if (!finite_x(v) || !finite_y(v)) continue;
    const double d = std::abs(row.log_p[v] - row.log_q[v]);
    double here = 0;
    // With e_v the error of gap_v, d_v is off by e_v − Σ q·e.
    if (close) here = u * (close_magnitude(v) + close_gap(v) + 2 * d) + close_shift;
    if (!surely_close) {
      const double base_x = evaluated.x[top_x], base_y = evaluated.y[top_y];
      const double w = std::abs(difference_of_gaps(evaluated.x[v], evaluated.y[v], base_x, base_y));
      // A common top entry has no gap at all.
      const double rounding =
          v == top_x && v == top_y ? 0 : gap_magnitude(evaluated.x[v], evaluated.y[v], base_x, base_y);
      here = std::max(here, u * (rounding + w + 2 * d) + far_shift);
    }
    error.d[v] = here;
    // q and p are both formed from the larger one and d.
    if (row.log_p[v] > row.log_q[v])
      error.log_q[v] = error.log_p[v] + here;
    else
      error.log_p[v] = error.log_q[v] + here;
  }
  return error;
}

double difference_form_error(const EvaluatedRow& evaluated, const FormulaArithmetic& arithmetic,
                             std::span<double> gradient) {
  const double u = arithmetic.unit;
  const RowCondition& row = evaluated.row;
  const RatioChange& ratio = evaluated.ratio;
  const double beta = row.beta;
  const std::size_t n = row.size();
  const NormalisedError error = normalised_error(evaluated, u);

  // Relative error of the pieces from which a term is put together: psi 8u, phi 16u with a condition number
  // of 2 in z, whose own error is 4u, and beta·psi − phi loses at most a factor 2.5.
  constexpr double pieces = 64;
  double divergence = 0, kl = 0;
  std::vector<double> score_error(n);
  for (std::size_t v = 0; v < n; ++v) {
    const bool has_q = row.log_q[v] > -infinity, has_p = row.log_p[v] > -infinity;
    if (!has_q && !has_p) continue;
    const bool both = has_q && has_p;
    const double log_larger = has_p && (!has_q || row.log_p[v] > row.log_q[v]) ? row.log_p[v] : row.log_q[v];
    const double d = both ? row.log_p[v] - row.log_q[v] : has_p ? infinity : -infinity;
    const LogRatio<double> entry{log_larger, d};
    // The row really used: its probabilities and scores may be that much larger.
    const double q = has_q ? grown(row.log_q[v], ratio.student[v]) : 0;
    const double p = has_p ? grown(row.log_p[v], ratio.teacher[v]) : 0;
    if (q == 0 && p == 0) continue;
    const double rho = both ? ratio.student[v] + ratio.teacher[v] : 0;
    const double growth = std::exp(std::min(std::max(ratio.student[v], ratio.teacher[v]), 700.0));
    const double q_score = std::abs(row.student.score[v]) + score_change(row.student.slope[v], rho);
    const double p_score = std::abs(row.teacher.score[v]) + score_change(row.teacher.slope[v], rho);
    const double larger_error =
        std::max(has_q && q > 0 ? error.log_q[v] : 0, has_p && p > 0 ? error.log_p[v] : 0) +
        u * (3 + std::abs(log_larger) + (both && q > 0 && p > 0 ? std::abs(d) : 0));
    const double q_half = beta == 0 ? 0 : row.student.weight * q,
                 p_half = beta == 1 ? 0 : row.teacher.weight * p;

    // The larger probability is kept and the smaller one formed from d, so the term's derivative in d is the
    // smaller one's weight·prob·score, and likewise for the others below. Where the sign of d is uncertain,
    // both count. The smaller one may have grown by the error of d as well.
    const double e_d = error.d[v], reach = rho + e_d;
    const double q_small = both && d > -reach ? grown(row.log_q[v], ratio.student[v] + e_d) : 0;
    const double p_small = both && d < reach ? grown(row.log_p[v], ratio.teacher[v] + e_d) : 0;
    const auto times = [](double size, double off) { return size == 0 ? 0 : size * off; };  // 0·inf is 0 here

    // A probability, and a product with it, may underflow.
    divergence +=
        arithmetic.smallest * (2 + times(row.student.weight, q_score) + times(row.teacher.weight, p_score));
    // The term is homogeneous in (p, q), moves with d as said, and is at most the sum of its two halves.
    const double halves = q_half * q_score + p_half * p_score + (beta == 0 || beta == 1 ? p + q : 0);
    const double term = std::min(
        divergence_term(entry, beta) * growth + times(q_half, rho * q_score) + times(p_half, rho * p_score),
        halves);
    divergence += times(term, larger_error + pieces * u);
    if (beta != 0) divergence += times(row.student.weight * q_small, e_d * (q_score + e_d));
    if (beta != 1) divergence += times(row.teacher.weight * p_small, e_d * (p_score + e_d));
    // At an endpoint p − q or q − p is part of the term, and its derivative in d is |p − q| where the kept
    // probability is the one that the divergence weights with: p·(d + e^{-d} − 1) at beta = 0, d > 0.
    const double tangent = -std::expm1(-(std::abs(d) + reach));
    if (beta == 0 && d > -reach) divergence += times(p * tangent, e_d);
    if (beta == 1 && d < reach) divergence += times(q * tangent, e_d);
    const double minor = std::min(beta, 1 - beta);
    const double major_ratio = beta > 0.5 ? -d : d;
    if (minor > 0 && minor * std::expm1(std::min(major_ratio, 700.0)) > 0.99)
      divergence += 16 * u * (p_half * (p_score + 1) + q_half * (q_score + 1));

    if (beta == 0) {
      gradient[v] = times(std::min(std::abs(row.student.grad[v]) + (growth - 1) * (p + q), p + q),
                          larger_error + 8 * u) +
                    times(std::max(p_small, q_small), e_d) + 4 * arithmetic.smallest;
      continue;
    }
    // Terms of KL(q‖M): q·(z − log(1+z)), with q·|z| = beta·|p − q|.
    const double z = both ? beta * std::expm1(std::min(d, 700.0)) : has_p ? infinity : -beta;
    const double slope = std::min(1.0, row.student.slope[v] * std::exp(std::min(rho + e_d, 700.0)));
    const double shift_term = beta * std::min(std::abs(p - q) + (growth - 1) * (p + q), p + q);
    const double bounded_z = std::min(1.0, std::abs(z) + reach);
    const double kl_term =
        std::min((has_q ? student_kl_term(entry, beta) : beta * p) * growth + times(slope * shift_term, rho) +
                     times(q, rho * (q_score + bounded_z)),
                 shift_term + q * q_score);
    kl += times(kl_term, larger_error + pieces * u);
    kl += times(q_small, e_d * (q_score + bounded_z + e_d));
    if (p_small > 0) kl += times(slope, e_d * (shift_term + beta * p_small * e_d));
    if (!(std::abs(z) < 0.49)) kl += 16 * u * (beta * (p + q) + q * q_score);
    if (q > 0) {
      score_error[v] = times(slope, e_d) + 8 * u * q_score;
      if (beta < 1 && d > 29.9) score_error[v] += 8 * u * (1 + 2 * std::min(std::abs(d), 1e308));
      if (beta < 1 && z < -0.49) score_error[v] += 8 * u;
    }
  }
  divergence += 2 * u * divergence + 2 * u * row.divergence + static_cast<double>(n) * u * u * row.divergence;
  if (beta == 0) return divergence;
  kl += 4 * u * std::abs(row.student.mean_score);
  for (std::size_t v = 0; v < n; ++v) {
    if (row.log_q[v] == -infinity) {
      gradient[v] = 0;
      continue;
    }
    const double q = grown(row.log_q[v], ratio.student[v]);
    const double underflow =
        arithmetic.smallest * (4 + std::abs(row.student.score[v]) + std::abs(row.student.mean_score) +
                               2 * (ratio.student[v] + ratio.teacher[v]) + score_error[v] + kl);
    if (q == 0) {
      gradient[v] = underflow;
      continue;
    }
    const double relative = error.log_q[v] + u * (7 + std::abs(row.log_q[v]));
    const double rho = ratio.student[v] + ratio.teacher[v];
    gradient[v] = row.student.weight * q * std::exp(std::min(relative, 700.0)) *
                      ((std::abs(row.student.score[v] - row.student.mean_score) + 2 * rho) * relative +
                       score_error[v] + kl) +
                  underflow;
  }
  return divergence;
}

}  // namespace

double evaluation_error(const EvaluatedRow& evaluated, const FormulaArithmetic& arithmetic,
                        std::span<double> gradient) {
  return arithmetic.difference_form ? difference_form_error(evaluated, arithmetic, gradient)
                                    : textbook_error(evaluated, arithmetic, gradient);
}

}  // namespace fljsd
