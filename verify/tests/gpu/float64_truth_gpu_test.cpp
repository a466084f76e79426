// SPDX-License-Identifier: Apache-2.0
// The benchmark's float64 truth against the CPU reference: two implementations that share nothing.
#include <cmath>

#include <gtest/gtest.h>

#include "verify/bench/gpu/float64_truth.h"
#include "verify/tests/gpu/gpu_case.h"

namespace fljsd::testing {
namespace {

TEST(Float64Truth, AgreesWithTheReference) {
  for (const double beta : {0.5, 0.1}) {
    for (const Recipe::Values values : {Recipe::Values::normal, Recipe::Values::uniform}) {
      Recipe r;
      r.values = values;
      r.tokens = 19, r.vocab = 1500, r.student_hidden = r.teacher_hidden = 120;
      r.options.beta = beta, r.options.temperature = 0.5;
      const HostCase host = make_case(r);
      const DeviceBuffer a(host.student_input.bytes), w(host.student_weight.bytes),
          b(host.teacher_input.bytes), u(host.teacher_weight.bytes);
      const bench::Float64Truth truth(
          {r.tokens, r.vocab, r.student_hidden, a.get(), w.get(), b.get(), u.get(), beta, 0.5});
      const Result want = linear_jsd<double>(host.problem(), r.options, Wanted::all());
      for (Index t = 0; t < r.tokens; ++t) {
        // 1500 terms of at most 1, each good to a few units of 2^-53, logits near 60 good to 2^-47.
        EXPECT_LE(std::abs(truth.token_loss()[static_cast<std::size_t>(t)] -
                           want.token_loss[static_cast<std::size_t>(t)]),
                  1e-12);
      }
      const auto compare = [&](const std::vector<double>& got, const RowMajorMatrix<double>& wanted) {
        ASSERT_EQ(static_cast<Eigen::Index>(got.size()), wanted.size());
        const Eigen::Map<const Eigen::VectorXd> x(got.data(), wanted.size()), y(wanted.data(), wanted.size());
        EXPECT_LE((x - y).norm(),
                  1e-9 * y.norm());  // relative: dlogits of saturated rows are good to 1e-12/kappa
      };
      compare(truth.input_grad(), want.student_input_grad);
      compare(truth.weight_grad(), want.student_weight_grad);
    }
  }
}

}  // namespace
}  // namespace fljsd::testing
