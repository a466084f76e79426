// SPDX-License-Identifier: Apache-2.0
#include "reference/chernoff.h"

#include <limits>
#include <sstream>
#include <stdexcept>

#include "reference/chernoff/product_basis.h"
#include "reference/chernoff/row_sweep.h"
#include "reference/parallel.h"

namespace fljsd {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  std::ostringstream text;
  text.precision(17);
  (text << ... << parts);
  throw std::invalid_argument(text.str());
}

void check(const OnePassConfig& config) {
  if (!(config.beta >= 0 && config.beta <= 1)) {
    refuse("beta is ", config.beta, ", but it must be in [0, 1].");
  }
  if (config.phases == PhaseMethod::product_basis && config.last_frequency > product_last_frequency) {
    refuse("last_frequency is ", config.last_frequency, ", but the product basis has frequencies up to ",
           product_last_frequency, ".");
  }
  if (!(config.tile >= 1 && config.tile <= 4096)) {
    refuse("tile is ", config.tile, ", but it must be in [1, 4096].");
  }
  if (config.lanes != 1 && config.lanes != 4 && config.lanes != 16) {
    refuse("lanes is ", config.lanes, ", but it must be 1, 4 or 16.");
  }
  if (!(config.headroom >= 0 && config.headroom <= 60)) {
    refuse("headroom is ", config.headroom, ", but it must be in [0, 60].");
  }
}

SweepConfig sweep_config(const OnePassConfig& config) {
  return {config.last_frequency, config.period, config.phases,  config.merge,
          config.tile,           config.lanes,  config.headroom};
}

}  // namespace

OnePassPlan::OnePassPlan(const OnePassConfig& config) : config_(config) {
  check(config);
  if (config.beta == 0 || config.beta == 1) {
    quadrature_.beta = config.beta;
    return;
  }
  quadrature_ = make_quadrature(config.weights, config.beta, config.last_frequency, config.period);
}

OnePassRow one_pass_row(std::span<const float> x, std::span<const float> y, const OnePassPlan& plan) {
  if (x.size() != y.size()) {
    refuse("y has ", y.size(), " logits, but x has ", x.size(), " and they must be equal.");
  }
  const SweepConfig config = sweep_config(plan.config());
  const double beta = plan.config().beta;
  if (beta == 0) {
    const KlSums<double> sums = sweep_row_kl(y, x, config);
    const KlResult<double> result = finalise(sums);
    return {result.kl, nan, nan, result.kl, {sums.max_b, result.log_sum_b}, {sums.max_a, result.log_sum_a}};
  }
  if (beta == 1) {
    const KlSums<double> sums = sweep_row_kl(x, y, config);
    const KlResult<double> result = finalise(sums);
    return {result.kl, nan, result.kl, nan, {sums.max_a, result.log_sum_a}, {sums.max_b, result.log_sum_b}};
  }
  const ChernoffSums<double> sums = sweep_row(x, y, config);
  const ChernoffResult<double> result = finalise(sums, plan.quadrature());
  return {result.divergence,
          result.kappa,
          result.student_kl,
          result.teacher_kl,
          {sums.max_x, result.log_sum_x},
          {sums.max_y, result.log_sum_y}};
}

std::vector<OnePassRow> one_pass_rows(const float* x, Index x_stride, const float* y, Index y_stride,
                                      Index rows, Index vocab, const OnePassPlan& plan) {
  std::vector<OnePassRow> result(static_cast<std::size_t>(rows));
  const auto size = static_cast<std::size_t>(vocab);
  parallel_for(rows, [&](Index row) {
    result[static_cast<std::size_t>(row)] =
        one_pass_row({x + row * x_stride, size}, {y + row * y_stride, size}, plan);
  });
  return result;
}

}  // namespace fljsd
