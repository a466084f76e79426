// SPDX-License-Identifier: Apache-2.0
// One problem on the host and on the device, the run of a stage on it, and error bounds from the float64
// reference.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/fljsd.h"
#include "reference/linear_jsd.h"
#include "verify/candidates/cuda/stage_call.h"

namespace fljsd::testing {

// What to make. Everything that a test varies.
struct Recipe {
  Index tokens = 7, vocab = 100, student_hidden = 16, teacher_hidden = 16;
  DType student_dtype = DType::bf16, teacher_dtype = DType::bf16;
  std::optional<DType> gradient_dtype;  // absent: that of the student
  std::optional<DType> student_bias, teacher_bias;
  Options options;
  double ignored = 0;  // share of tokens whose label is ignore_index; > 0: there are labels
  Index pad = 0;       // elements between rows, in every matrix, holding NaN
  Index misalign = 0;  // elements by which every tensor starts after a multiple of 256 bytes
  std::uint64_t seed = 1;

  // Element (row, column) of a tensor. `grid`: small multiples of powers of two, whose dot products are exact
  // in fp32 and whose logits are exact in bf16 too; `normal`: rounded normals; `uniform`: k/256 as the
  // published workload draws them.
  enum class Values { grid, normal, uniform, near } values = Values::grid;
  double spread = 1;            // of normal inputs: logits have about this standard deviation
  double gap = 0;               // near: teacher logits are student logits + gap · {−1, 0, 1}
  bool minus_infinity = false;  // biases hold −inf in places
};

std::string describe(const Recipe& recipe);

struct HostCase {
  Recipe recipe;
  HostMatrix student_input, student_weight, teacher_input, teacher_weight;
  std::optional<HostMatrix> student_bias, teacher_bias;  // [1, vocab]
  std::optional<std::vector<std::int64_t>> labels;

  Problem problem() const;
};
HostCase make_case(const Recipe& recipe);

using StageResult = StageOutput;

// Fields of the configuration that a test sets besides the recipe's.
using Configure = std::function<void(fljsd_config&)>;

// A call of a stage on a case. Reports what StageCall finds wrong to GoogleTest.
class DeviceCase {
 public:
  DeviceCase(const HostCase& host, const std::string& stage, bool gradients, const Configure& configure = {});

  // The pass is forward_backward when gradients are wanted. Outputs are poisoned before.
  StageResult run(std::uint8_t workspace_poison = 0xff);
  // Without waiting or checking; for concurrent runs.
  void enqueue(cudaStream_t stream) { call_.enqueue(stream); }
  StageResult collect();
  // The plan itself; for calls that a test makes by hand.
  fljsd_plan* plan() const { return call_.plan(); }
  fljsd_tensors tensors() const { return call_.tensors(); }
  const DeviceBuffer& workspace() const { return call_.workspace(); }
  // Uses the plan of another case with equal recipe.
  void share_plan(const DeviceCase& other) { call_.share_plan(other.call_); }
  std::string name() const { return name_; }

 private:
  StageResult checked(StageResult result) const;

  std::string name_;
  StageCall call_;
};

// How far a stage may be from exact arithmetic on the logits that its products deliver.
struct RowBudget {
  double divergence_absolute, divergence_relative;
  double gradient;  // relative to q·(|KL(q‖M)| + |log(q/M)|), each entry of dD/dx
  double kappa;     // absolute error of (1−beta)·kappa, which enters dD/dx times q
};
RowBudget budget_of(const std::string& stage, const HostCase& host);
// Whether losses come from the one-pass statistics.
bool is_one_pass(const std::string& stage);

// Compares a result with the reference. `logit_error`: a bound of the error of any logit (after temperature),
// 0 when the products are exact. Reports failures to GoogleTest.
void expect_close(const StageResult& result, const HostCase& host, const std::string& stage,
                  double logit_error = 0);

// The names of all stages that compute a loss, and their form in the names of parameterised tests.
std::vector<std::string> real_stages();
std::string stage_test_name(const ::testing::TestParamInfo<std::string>& stage);

}  // namespace fljsd::testing
