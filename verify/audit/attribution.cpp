// SPDX-License-Identifier: Apache-2.0
#include "verify/audit/attribution.h"

#include <algorithm>
#include <cmath>

#include "verify/judge/metrics.h"

namespace fljsd {
namespace {

bool is_16_bit(Storage storage) {
  return storage == Storage::bf16 || storage == Storage::input;
}

// difference / size; absent where the truth is 0, NaN or infinite and there is nothing to relate to.
std::optional<double> relative(double difference, double size) {
  if (!std::isfinite(size)) return std::nullopt;
  if (difference == 0) return 0;
  return size > 0 ? std::optional(difference / size) : std::nullopt;
}

std::optional<double> relative_l2(const RowMajorMatrix<double>& from, const RowMajorMatrix<double>& to,
                                  const RowMajorMatrix<double>& truth) {
  if (truth.size() == 0) return std::nullopt;
  return relative(matrix_error(from, to).absolute_l2, truth.norm());
}

// The median over rows of ‖to − from‖ / ‖truth‖; rows whose truth is 0 or not finite have no say.
std::optional<double> median_row(const RowMajorMatrix<double>& from, const RowMajorMatrix<double>& to,
                                 const RowMajorMatrix<double>& truth) {
  if (truth.size() == 0) return std::nullopt;
  const std::vector<double> distances = matrix_error(from, to).row_error;
  std::vector<double> relative;
  for (Index r = 0; r < truth.rows(); ++r) {
    const double size = truth.row(r).norm();
    if (std::isfinite(size) && size > 0) relative.push_back(distances[static_cast<std::size_t>(r)] / size);
  }
  if (relative.empty()) return std::nullopt;
  const auto middle = relative.begin() + static_cast<std::ptrdiff_t>(relative.size() / 2);
  std::nth_element(relative.begin(), middle, relative.end());
  return *middle;
}

}  // namespace

std::vector<WaypointPipeline> waypoints(const Pipeline& target) {
  std::vector<WaypointPipeline> path;
  const std::vector<Pipeline> falls = waterfall(target);
  for (std::size_t i = 0; i < falls.size(); ++i) {
    const Step step = all_steps()[i];
    if (step == Step::logits && is_16_bit(target.logits)) {
      Pipeline summed = falls[i];
      summed.logits = Storage::fp32;
      if (is_16_bit(summed.scaled_logits)) summed.scaled_logits = Storage::fp32;
      path.push_back({"logits in fp32", describe(summed, step), summed});
      path.push_back({"logits rounded", describe(target, step), falls[i]});
      continue;
    }
    path.push_back({step == Step::logits ? "logits in fp32" : name(step), describe(target, step), falls[i]});
  }
  return path;
}

Errors distance(const Result& from, const Result& to, const Result& truth) {
  Errors errors;
  if (truth.loss && to.loss)
    errors.loss = relative(absolute_error(*from.loss, *to.loss), std::abs(*truth.loss));
  const auto is_finite = [](double loss) { return std::isfinite(loss); };
  if (!to.token_loss.empty() && std::all_of(truth.token_loss.begin(), truth.token_loss.end(), is_finite))
    errors.token_loss = vector_error(from.token_loss, to.token_loss).max;
  if (to.student_input_grad.size() == 0) return errors;
  errors.student_input_grad =
      relative_l2(from.student_input_grad, to.student_input_grad, truth.student_input_grad);
  errors.median_token_grad =
      median_row(from.student_input_grad, to.student_input_grad, truth.student_input_grad);
  errors.student_weight_grad =
      relative_l2(from.student_weight_grad, to.student_weight_grad, truth.student_weight_grad);
  return errors;
}

Errors zero_errors(const Result& truth) {
  Result zero = truth;
  if (zero.loss) zero.loss = 0;
  std::fill(zero.token_loss.begin(), zero.token_loss.end(), 0.0);
  zero.student_input_grad.setZero();
  zero.student_weight_grad.setZero();
  return distance(truth, zero, truth);
}

Attribution attribute(const std::string& candidate, const std::vector<WaypointPipeline>& waypoints,
                      std::span<const Result* const> results, const Result& truth) {
  Attribution attribution{candidate, {}};
  const Result* before = &truth;
  const Pipeline exact;
  const Pipeline* pipeline_before = &exact;
  for (std::size_t i = 0; i < waypoints.size(); ++i) {
    attribution.steps.push_back({waypoints[i].step, waypoints[i].does,
                                 waypoints[i].pipeline == *pipeline_before,
                                 distance(*before, *results[i], truth), distance(truth, *results[i], truth)});
    before = results[i];
    pipeline_before = &waypoints[i].pipeline;
  }
  return attribution;
}

}  // namespace fljsd
