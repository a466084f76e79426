// SPDX-License-Identifier: Apache-2.0
// A small dense linear program with few unknowns and many constraints, to which constraints are added as it
// goes.
#pragma once

#include <vector>

#include <Eigen/Core>

namespace fljsd {

// Minimises cost·z subject to row_i·z <= limit_i for all i, and |z_j| <= box.
//
// The simplex method on the dual: a vertex is a set of as many active constraints as there are unknowns; the
// most violated constraint enters, and the ratio test says which one leaves. Adding constraints keeps the
// vertex, so a refined problem starts from the solution of the coarser one. Deterministic.
class LinearProgram {
 public:
  LinearProgram(const Eigen::VectorXd& cost, double box);

  void add(const Eigen::VectorXd& row, double limit);

  // Solves until no constraint is violated by more than `absolute`, or `relative` times a positive minimum.
  // Throws std::runtime_error when the simplex method does not get there.
  const Eigen::VectorXd& solve(double absolute, double relative);

 private:
  Eigen::VectorXd cost_;
  std::vector<Eigen::VectorXd> rows_;
  std::vector<double> limits_;
  std::vector<std::size_t> active_;
  Eigen::VectorXd z_;
};

}  // namespace fljsd
