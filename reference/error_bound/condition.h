// SPDX-License-Identifier: Apache-2.0
// How far the divergence and its gradient move when the logits move: rigorous bounds for finite
// perturbations.
//
// Let logit v move by at most dx_v (student) and dy_v (teacher), in any direction. With
//   lambda_x = log Σ q·e^{dx},  lambda_y = log Σ p·e^{dy},  eta_v = dx_v + lambda_x,  theta_v = dy_v +
//   lambda_y,
// q_v moves by a factor within e^{±eta_v}, p_v within e^{±theta_v} and log(p_v/q_v) by at most
// rho_v = eta_v + theta_v, and everything here follows from these three. Proofs: docs/error_analysis.md.
#pragma once

#include <span>
#include <vector>

namespace fljsd {

// −beta·log(beta) − (1−beta)·log(1−beta): the largest value of D for 0 < beta < 1.
double binary_entropy(double beta);

// The sharp Lipschitz constants of D for 0 < beta < 1:
//   |D(x + dx, y + dy) − D(x, y)| <= student_lipschitz(beta)·‖dx‖∞ + teacher_lipschitz(beta)·‖dy‖∞.
// The first is max over b in [0, 1] of 2·(1−beta)·b·(1−b)·log(1 + beta/((1−beta)·b)), the supremum of
// ‖dD/dx‖₁ over all rows, approached by student (1−b, b) against teacher (0, 1); the second is the same at
// 1−beta. At an endpoint one of them is 2 and the other infinite: KL(p‖q) has no Lipschitz constant in y.
double student_lipschitz(double beta);
double teacher_lipschitz(double beta);

// One row of logits and everything that its bounds need. Logits of −inf are probability 0 and do not move.
class RowCondition {
 public:
  // x student, y teacher, temperature applied; both of length vocab.
  RowCondition(std::span<const double> x, std::span<const double> y, double beta);

  // False if a model has no distribution here (NaN, +inf, or no finite logit): nothing else is meaningful.
  bool has_distribution() const { return has_distribution_; }
  std::size_t size() const { return log_q.size(); }

  double beta = 0;
  double divergence = 0;
  double student_grad_norm = 0;  // ‖dD/dx‖₁ = Σ|g_x|: first-order condition number of D for student logits
  double teacher_grad_norm = 0;  // ‖dD/dy‖₁; infinite only where D is
  double overlap = 0;            // Σ beta·(1−beta)·p·q/M <= beta·(1−beta): the curvature at p = q

  // One model's half of D: g_v = weight · prob_v · (score_v − mean_score).
  struct Side {
    double weight = 0;          // 1−beta for the student, beta for the teacher; 1 at the other's endpoint
    double mean_score = 0;      // Σ prob·score: KL(q‖M), KL(p‖M)
    std::vector<double> prob;   // q_v, p_v
    std::vector<double> score;  // log(q_v/M_v), log(p_v/M_v); 0 where prob_v is 0
    std::vector<double> slope;  // d score / d log ratio: sigma_v = beta·p_v/M_v, and 1 − sigma_v
    std::vector<double> grad;   // g_v
  };
  Side student, teacher;
  std::vector<double> log_q, log_p;  // −inf for probability 0

 private:
  bool has_distribution_ = false;
};

// Largest absolute movement of each logit, natural units; entries at logits of −inf are ignored.
struct LogitChange {
  std::span<const double> student, teacher;
};

// eta, theta and rho of a row, see above.
struct RatioChange {
  double student_shift = 0, teacher_shift = 0;  // lambda_x, lambda_y
  std::vector<double> student, teacher;         // eta, theta
};
RatioChange ratio_change(const RowCondition& row, const LogitChange& change);

// prob·e^eta, at most 1: what a probability may grow to.
double grown(double log_prob, double eta);
// How much a probability may change: prob·(e^eta − 1) for eta <= 1, else grown().
double rise(double log_prob, double eta);

// How much a score may change when the log ratio moves by rho: rho·min(1, slope·e^rho), because the slope is
// at most 1 and its logarithm changes no faster than the log ratio.
double score_change(double slope, double rho);

// A bound on |D(x + dx, y + dy) − D(x, y)|: the first-order term and a bound on all that is left, capped by
// what D can do at all (Lipschitz constants, 0 <= D <= h(beta)).
double divergence_change(const RowCondition& row, const LogitChange& change);
double divergence_change(const RowCondition& row, const LogitChange& change, const RatioChange& ratio);

// bound[v] >= |change of dD/dx_v|, for all v at once.
void gradient_change(const RowCondition& row, const LogitChange& change, std::span<double> bound);
void gradient_change(const RowCondition& row, const RatioChange& ratio, std::span<double> bound);

}  // namespace fljsd
