// SPDX-License-Identifier: Apache-2.0
#include "reference/chernoff/linear_program.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include <Eigen/LU>

namespace fljsd {

LinearProgram::LinearProgram(const Eigen::VectorXd& cost, double box) : cost_(cost) {
  // The box's corner that minimises the cost is the first vertex. Its multipliers are the costs, and those
  // that are 0 would let the method go round in circles; a different tiny cost for each unknown (golden-ratio
  // multiples, all distinct) keeps every step a descent.
  for (Eigen::Index j = 0; j < cost.size(); ++j) {
    const double sign = cost[j] > 0 ? -1 : 1;
    const double golden = 0.6180339887498949 * static_cast<double>(j + 1);
    cost_[j] -= sign * 1e-13 * (1 + golden - std::floor(golden));
    active_.push_back(rows_.size());
    add(sign * Eigen::VectorXd::Unit(cost.size(), j), box);
    add(-sign * Eigen::VectorXd::Unit(cost.size(), j), box);
  }
}

void LinearProgram::add(const Eigen::VectorXd& row, double limit) {
  rows_.push_back(row);
  limits_.push_back(limit);
}

const Eigen::VectorXd& LinearProgram::solve(double absolute, double relative) {
  const Eigen::Index unknowns = cost_.size();
  const Eigen::Index constraints = static_cast<Eigen::Index>(rows_.size());
  Eigen::MatrixXd all(unknowns, constraints);
  Eigen::VectorXd limits(constraints);
  for (Eigen::Index i = 0; i < constraints; ++i) {
    all.col(i) = rows_[static_cast<std::size_t>(i)];
    limits[i] = limits_[static_cast<std::size_t>(i)];
  }
  Eigen::MatrixXd vertex(unknowns, unknowns);
  Eigen::VectorXd vertex_limits(unknowns);
  constexpr int most_steps = 5000;
  for (int step = 0; step < most_steps; ++step) {
    for (Eigen::Index j = 0; j < unknowns; ++j) {
      const auto i = static_cast<Eigen::Index>(active_[static_cast<std::size_t>(j)]);
      vertex.col(j) = all.col(i);
      vertex_limits[j] = limits[i];
    }
    const Eigen::PartialPivLU<Eigen::MatrixXd> lu(vertex);
    z_ = lu.transpose().solve(vertex_limits);
    Eigen::Index entering = 0;
    const double violation = (all.transpose() * z_ - limits).maxCoeff(&entering);
    // Until all constraints hold, cost·z is a lower limit of the minimum.
    if (violation <= absolute + relative * std::max(0.0, cost_.dot(z_))) return z_;

    const Eigen::VectorXd multipliers = lu.solve(-cost_);  // >= 0 but for rounding
    const Eigen::VectorXd direction = lu.solve(all.col(entering));
    Eigen::Index leaving = -1;
    double least = std::numeric_limits<double>::infinity();
    for (Eigen::Index j = 0; j < unknowns; ++j) {
      if (direction[j] <= 1e-9) continue;
      const double ratio = std::max(multipliers[j], 0.0) / direction[j];
      if (ratio < least) {
        least = ratio;
        leaving = j;
      }
    }
    if (leaving < 0) throw std::runtime_error("The linear program for minimax weights has no solution.");
    active_[static_cast<std::size_t>(leaving)] = static_cast<std::size_t>(entering);
  }
  throw std::runtime_error("The linear program for minimax weights did not converge.");
}

}  // namespace fljsd
