// SPDX-License-Identifier: Apache-2.0
// The tables of docs/one_pass.md, as CSV on stdout:
//
//   one_pass_tables bounds     > data/measured/one_pass_bounds.csv      largest error of each rule over all
//   rows one_pass_tables float32    > data/measured/one_pass_float32.csv     observed error of each
//   arithmetic, and its bound one_pass_tables gradients  > data/measured/one_pass_gradients.csv   gradients
//   before and after the swept constant
//
// All are deterministic; bounds takes a minute or two, the others less.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "reference/chernoff.h"
#include "reference/chernoff/state.h"
#include "reference/chernoff/worst_case.h"
#include "reference/divergence.h"
#include "reference/largest.h"
#include "verify/cases/random.h"

namespace fljsd {
namespace {

void bounds_row(const char* note, WeightKind kind, int last, double period, double beta) {
  const Quadrature rule = make_quadrature(kind, beta, last, period);
  const WorstCase d = worst_case(Kernel::divergence, rule), s = worst_case(Kernel::student_kl, rule),
                  t = worst_case(Kernel::teacher_kl, rule);
  std::printf("%s,%s,%d,%g,%g,%.3e,%.3e,%.3e,%.3e,%.3e,%.3e,%.3e\n", name(kind), note, last, period, beta,
              d.bound, s.bound, t.bound, d.attained, s.attained, d.pointwise, s.pointwise);
}

void bounds() {
  std::puts("# command: one_pass_tables bounds");
  std::puts(
      "# divergence, student_kl, teacher_kl: bounds of |error| of D, (1-beta)*KL(q||M), beta*KL(p||M) for "
      "any rows");
  std::puts(
      "# pointwise: sup over s of the weighted error of the kernel; period: best = least larger of D and KL "
      "at beta 0.5");
  std::puts(
      "weights,period_is,last_frequency,period,beta,divergence,student_kl,teacher_kl,divergence_attained,"
      "student_kl_attained,divergence_pointwise,student_kl_pointwise");
  const double betas[] = {0.5, 0.1, 0.9, 0.001};
  for (const WeightKind kind : {WeightKind::trapezoid, WeightKind::exact_at_equality}) {
    for (const auto& [last, period] :
         {std::pair(13, 31.0), std::pair(18, 36.0), std::pair(25, 40.0), std::pair(57, 60.0)}) {
      for (const double beta : betas) bounds_row("given", kind, last, period, beta);
    }
  }
  for (int last = 6; last <= 24; ++last) {
    double best_period = 0, least = 1;
    for (int period = 20; period <= 48; ++period) {
      const Quadrature rule = make_quadrature(WeightKind::minimax, 0.5, last, period);
      const double larger =
          std::max(worst_case(Kernel::divergence, rule).bound, worst_case(Kernel::student_kl, rule).bound);
      if (larger < least) {
        least = larger;
        best_period = period;
      }
    }
    for (const double beta : betas) bounds_row("best", WeightKind::minimax, last, best_period, beta);
    for (const double beta : betas) bounds_row("given", WeightKind::minimax, last, 32, beta);
  }
}

struct Rows {
  const char* family;
  std::vector<std::vector<float>> x, y;
};

template <class X, class Y>
Rows make_rows(const char* family, int count, Index vocab, const X& x, const Y& y) {
  Rows rows{family, {}, {}};
  for (int r = 0; r < count; ++r) {
    const Random a(static_cast<std::uint64_t>(r), 0), b(static_cast<std::uint64_t>(r), 1);
    auto& row_x = rows.x.emplace_back();
    auto& row_y = rows.y.emplace_back();
    for (Index v = 0; v < vocab; ++v) {
      row_x.push_back(static_cast<float>(x(a, v)));
      row_y.push_back(static_cast<float>(y(a, b, v)));
    }
  }
  return rows;
}

std::vector<Rows> families(Index vocab, int count) {
  std::vector<Rows> result;
  const auto add = [&](const char* family, const auto& x, const auto& y) {
    result.push_back(make_rows(family, count, vocab, x, y));
  };
  using R = const Random&;
  add(
      "kaiming-like", [](R a, Index v) { return 0.6 * a.deviate(v); },
      [](R, R b, Index v) { return 0.6 * b.deviate(v); });
  add(
      "spread 3", [](R a, Index v) { return 3 * a.deviate(v); },
      [](R, R b, Index v) { return 3 * b.deviate(v); });
  add(
      "saturated", [](R a, Index v) { return 1024 + 10.7 * a.deviate(v); },
      [](R, R b, Index v) { return 1024 + 10.7 * b.deviate(v); });
  add(
      "offsets 1e4 and -300", [](R a, Index v) { return 1e4 + 2 * a.deviate(v); },
      [](R, R b, Index v) { return -300 + 2 * b.deviate(v); });
  add(
      "peaks of 40", [](R a, Index v) { return 3 * a.deviate(v) + (v == 5 ? 40 : 0); },
      [](R, R b, Index v) { return 3 * b.deviate(v) + (v == 5 ? 39 : 0); });
  add(
      "two levels", [vocab](R, Index v) { return v < vocab / 2 ? 0 : -1; },
      [vocab](R, R, Index v) { return v < vocab / 2 ? -1 : 0; });
  add(
      "rising", [vocab](R, Index v) { return 20 * static_cast<double>(v) / static_cast<double>(vocab); },
      [vocab](R, R b, Index v) {
        return 20 * static_cast<double>(v) / static_cast<double>(vocab) + b.deviate(v);
      });
  add(
      "gap 1e-1", [](R a, Index v) { return 2 * a.deviate(v); },
      [](R a, R b, Index v) { return 2 * a.deviate(v) + 1e-1 * b.deviate(v); });
  add(
      "gap 1e-3", [](R a, Index v) { return 2 * a.deviate(v); },
      [](R a, R b, Index v) { return 2 * a.deviate(v) + 1e-3 * b.deviate(v); });
  add(
      "gap 1e-5", [](R a, Index v) { return 2 * a.deviate(v); },
      [](R a, R b, Index v) { return 2 * a.deviate(v) + 1e-5 * b.deviate(v); });
  return result;
}

struct Normalised {
  std::vector<double> larger, d;
};
Normalised normalised(const std::vector<float>& x, const std::vector<float>& y) {
  Normalised row{{x.begin(), x.end()}, {y.begin(), y.end()}};
  normalise<double>(row.larger, row.d);
  return row;
}

constexpr Index full_vocab = 128256;

void float32() {
  std::puts("# command: one_pass_tables float32");
  std::puts(
      "# vocab 128256, beta 0.5, tiles of 160 in 4 lanes; largest error of 4 rows (D; KL is 0.5*KL(q||M)) "
      "against");
  std::puts(
      "# float64. 'rule' sums in float64: what is left is the error of the rule. *_arithmetic: distance from "
      "that.");
  std::puts(
      "weights,last_frequency,period,phases,merge,family,divergence_error,kl_error,divergence_arithmetic,"
      "kl_arithmetic,divergence_bound,kl_bound");
  for (const Rows& rows : families(full_vocab, 4)) {
    std::vector<double> exact_d, exact_kl, rule_d, rule_kl;
    const OnePassPlan plain({});
    for (std::size_t r = 0; r < rows.x.size(); ++r) {
      const Normalised row = normalised(rows.x[r], rows.y[r]);
      exact_d.push_back(divergence<double>(row.larger, row.d, 0.5));
      exact_kl.push_back(student_kl<double>(row.larger, row.d, 0.5));
    }
    const auto print = [&](const char* phases, const char* merge, const std::vector<double>& d,
                           const std::vector<double>& kl, const OnePassErrorBound& bound) {
      double error_d = 0, error_kl = 0, arithmetic_d = 0, arithmetic_kl = 0;
      for (std::size_t r = 0; r < d.size(); ++r) {
        error_d = larger_or_nan(error_d, std::abs(d[r] - exact_d[r]));
        error_kl = larger_or_nan(error_kl, std::abs(kl[r] - exact_kl[r]) / 2);
        arithmetic_d = larger_or_nan(arithmetic_d, std::abs(d[r] - rule_d[r]));
        arithmetic_kl = larger_or_nan(arithmetic_kl, std::abs(kl[r] - rule_kl[r]) / 2);
      }
      std::printf("minimax,12,32,%s,%s,%s,%.2e,%.2e,%.2e,%.2e,%.2e,%.2e\n", phases, merge, rows.family,
                  error_d, error_kl, arithmetic_d, arithmetic_kl, bound.divergence, bound.scaled_student_kl);
    };
    for (std::size_t r = 0; r < rows.x.size(); ++r) {
      ChernoffState<double> state(12, 32, PhaseMethod::recurrence);
      for (std::size_t v = 0; v < rows.x[r].size(); ++v) state.add(rows.x[r][v], rows.y[r][v]);
      const auto result = finalise(state.sums(), plain.quadrature());
      rule_d.push_back(result.divergence);
      rule_kl.push_back(result.student_kl);
    }
    OnePassErrorBound rule{};
    rule.divergence = worst_case(Kernel::divergence, plain.quadrature()).bound;
    rule.scaled_student_kl = worst_case(Kernel::student_kl, plain.quadrature()).bound;
    print("rule", "float64", rule_d, rule_kl, rule);
    for (const PhaseMethod phases :
         {PhaseMethod::sincos, PhaseMethod::recurrence, PhaseMethod::stride4, PhaseMethod::product_basis}) {
      for (const MergeSum merge : {MergeSum::plain, MergeSum::compensated}) {
        const OnePassPlan plan({.phases = phases, .merge = merge});
        std::vector<double> d, kl;
        for (std::size_t r = 0; r < rows.x.size(); ++r) {
          const OnePassRow row = one_pass_row(rows.x[r], rows.y[r], plan);
          d.push_back(row.divergence);
          kl.push_back(row.student_kl);
        }
        print(name(phases), name(merge), d, kl, one_pass_error_bound(plan, full_vocab));
      }
    }
  }
}

void gradients() {
  std::puts("# command: one_pass_tables gradients");
  std::puts(
      "# vocab 128256, one row; relative L2 error of dlogits with kappa from the first sweep and with the "
      "swept one");
  std::puts(
      "family,beta,divergence,kappa,kappa_relative_error,missed,gradient_error,gradient_error_repeated");
  for (const Rows& rows : families(full_vocab, 1)) {
    for (const double beta : {0.1, 0.5, 0.9}) {
      const std::vector<float>&x = rows.x[0], &y = rows.y[0];
      const OnePassPlan plan({.beta = beta});
      const Normalised exact = normalised(x, y);
      const double kl = student_kl<double>(exact.larger, exact.d, beta);
      const auto error = [&](const std::vector<float>& dlogits) {
        double difference = 0, size = 0;
        for (std::size_t v = 0; v < dlogits.size(); ++v) {
          const double g = gradient_term(LogRatio<double>{exact.larger[v], exact.d[v]}, beta, kl);
          difference += (dlogits[v] - g) * (dlogits[v] - g);
          size += g * g;
        }
        return std::sqrt(difference / size);
      };
      std::vector<float> dlogits(x.size());
      const OnePassRow row = one_pass_row(x, y, plan);
      const OnePassCertificate certificate = one_pass_gradient(x, y, row, plan, dlogits);
      const double once = error(dlogits);
      one_pass_gradient(x, y, with_swept_constant(row, certificate, plan), plan, dlogits);
      const double kappa = certificate.swept;
      std::printf("%s,%g,%.6e,%.3e,%.1e,%d,%.1e,%.1e\n", rows.family, beta,
                  divergence<double>(exact.larger, exact.d, beta), kappa, std::abs(row.kappa - kappa) / kappa,
                  certificate.missed ? 1 : 0, once, error(dlogits));
    }
  }
}

}  // namespace
}  // namespace fljsd

int main(int argc, char** argv) {
  const std::string table = argc == 2 ? argv[1] : "";
  if (table == "bounds") {
    fljsd::bounds();
  } else if (table == "float32") {
    fljsd::float32();
  } else if (table == "gradients") {
    fljsd::gradients();
  } else {
    std::fputs("usage: one_pass_tables bounds|float32|gradients\n", stderr);
    return 2;
  }
  return 0;
}
