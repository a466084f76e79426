// SPDX-License-Identifier: Apache-2.0
// The plain Hopper products: stages hopper-gemm, whose logits lie in the workspace, and hopper-log-sum-exp,
// whose token_loss is the student's log-sum-exp minus the teacher's.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "verify/tests/gpu/gpu_case.h"

namespace fljsd::testing {
namespace {

constexpr Index k_padding = 8;  // leading dimensions must be multiples of 8

Index round_up(Index a, Index to) {
  return (a + to - 1) / to * to;
}

bool hopper() {
  return fljsd_stage_available("hopper-gemm", -1) == FLJSD_OK;
}

// Rows that start at multiples of 16 bytes, a gap of NaN behind each.
HostCase make_padded_case(Recipe recipe, Index pad) {
  recipe.pad = pad;
  HostCase host = make_case(recipe);
  for (HostMatrix* m :
       {&host.student_input, &host.student_weight, &host.teacher_input, &host.teacher_weight}) {
    const Index ld = round_up(m->ld, k_padding);
    HostMatrix wide{m->dtype, m->rows, m->cols, ld, {}};
    wide.bytes.assign(static_cast<std::size_t>(m->rows * ld) * size_of(m->dtype), std::byte{0xff});
    for (Index r = 0; r < m->rows; ++r) {
      for (Index c = 0; c < m->cols; ++c) wide.set(r, c, m->at(r, c));
    }
    *m = wide;
  }
  return host;
}

struct Dot {
  double value = 0, magnitude = 0;  // Σ a·b and Σ |a·b|
};
// A matrix in double, packed.
struct Wide {
  Index cols;
  std::vector<double> elements;

  explicit Wide(const HostMatrix& m) : cols(m.cols) {
    for (Index r = 0; r < m.rows; ++r) {
      for (Index c = 0; c < m.cols; ++c) elements.push_back(m.at(r, c));
    }
  }
  const double* row(Index r) const { return elements.data() + r * cols; }
};

Dot dot(const Wide& a, Index row, const Wide& b, Index entry) {
  Dot d;
  const double *x = a.row(row), *y = b.row(entry);
  for (Index h = 0; h < a.cols; ++h) {
    const double product = x[h] * y[h];
    d.value += product;
    d.magnitude += std::abs(product);
  }
  return d;
}

// Bound of the error of a logit before it is rounded: tensor cores truncate each of hidden/8 partial sums at
// 2^-22 of Σ|a·b|, as in stages_gpu_test.cpp. 0 where products are exact.
double product_error(const Recipe& r, const Dot& d, Index hidden) {
  return r.values == Recipe::Values::normal ? (static_cast<double>(hidden) / 8 + 2) * 0x1p-22 * d.magnitude
                                            : 0;
}

Index valid_vocab(const Recipe& r) {
  return r.options.valid_vocab.value_or(r.vocab);
}

// Every logit. Behind the columns that exist the workspace keeps its poison, but for the last piece of 16
// bytes that has one, which the copy engine writes whole.
void check_logits(const HostCase& host, std::uint8_t poison) {
  const Recipe& r = host.recipe;
  DeviceCase device(host, "hopper-gemm", false);
  device.run(poison);
  const std::vector<std::byte> workspace = device.workspace().to_host();
  const Index valid = valid_vocab(r), ld = round_up(valid, 64);
  const auto element = static_cast<Index>(size_of(r.student_dtype));
  const Index second = round_up(r.tokens * ld * element, 256);
  const double unit = r.student_dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;  // half a last place, relative
  Index wrong = 0, overwritten = 0;
  for (int product = 0; product < 2; ++product) {
    const Wide input(product == 0 ? host.student_input : host.teacher_input);
    const Wide weight(product == 0 ? host.student_weight : host.teacher_weight);
    const std::byte* logits = workspace.data() + (product == 0 ? 0 : second);
    for (Index t = 0; t < r.tokens; ++t) {
      for (Index v = 0; v < valid; ++v) {
        const Dot want = dot(input, t, weight, v);
        const double got = load(r.student_dtype, logits, t * ld + v);
        const double error = product_error(r, want, input.cols);
        // 2^-25: half of the smallest number of fp16
        const double bound = error + unit * (std::abs(want.value) + error) + 0x1p-25;
        if (!(std::abs(got - want.value) <= bound) && wrong++ == 0) {
          ADD_FAILURE() << device.name() << ": logit (" << t << ", " << v << ") of product " << product
                        << " is " << got << ", not " << want.value;
        }
      }
      for (Index byte = (t * ld + round_up(valid, 16 / element)) * element; byte < (t + 1) * ld * element;
           ++byte)
        overwritten += logits[byte] != std::byte{poison} ? 1 : 0;
    }
  }
  EXPECT_EQ(wrong, 0) << device.name();
  EXPECT_EQ(overwritten, 0) << device.name();
}

struct LogSumExp {
  double value = 0;
  double logit_error = 0;  // of any logit
};
LogSumExp log_sum_exp(const Recipe& r, const Wide& input, const Wide& weight, Index token) {
  LogSumExp result;
  std::vector<double> logits;
  for (Index v = 0; v < valid_vocab(r); ++v) {
    const Dot d = dot(input, token, weight, v);
    logits.push_back(d.value);
    result.logit_error = std::max(result.logit_error, product_error(r, d, input.cols));
  }
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double x : logits) sum += std::exp(x - most);
  result.value = most + std::log(sum);
  return result;
}

// The differences of the log-sum-exps. Each is good to 2e-6 (gemm_log_sum_exp.cu derives it) and the largest
// error of a logit; the difference is rounded to fp32.
void check_log_sum_exps(const HostCase& host) {
  DeviceCase device(host, "hopper-log-sum-exp", false);
  const StageResult first = device.run(0xff);
  EXPECT_TRUE(std::isnan(first.loss)) << device.name();
  const Wide student_input(host.student_input), student_weight(host.student_weight);
  const Wide teacher_input(host.teacher_input), teacher_weight(host.teacher_weight);
  for (Index t = 0; t < host.recipe.tokens; ++t) {
    const LogSumExp student = log_sum_exp(host.recipe, student_input, student_weight, t);
    const LogSumExp teacher = log_sum_exp(host.recipe, teacher_input, teacher_weight, t);
    const double want = student.value - teacher.value;
    const double bound = 2 * 2e-6 + student.logit_error + teacher.logit_error + 0x1p-24 * std::abs(want);
    const double got = static_cast<double>(first.token_loss[static_cast<std::size_t>(t)]);
    EXPECT_TRUE(std::abs(got - want) <= bound)
        << device.name() << ": token " << t << ": " << got << ", not " << want << ", bound " << bound;
  }
  // Rerun with other bytes in the workspace.
  const StageResult second = device.run(0x3f);
  EXPECT_EQ(
      std::memcmp(first.token_loss.data(), second.token_loss.data(), first.token_loss.size() * sizeof(float)),
      0)
      << device.name() << ": the second run differs";
}

void check(const Recipe& recipe, Index pad = 0) {
  const HostCase host = make_padded_case(recipe, pad);
  check_logits(host, 0xff);
  check_logits(host, 0x3f);
  check_log_sum_exps(host);
}

class HopperGemm : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!hopper()) GTEST_SKIP() << fljsd_last_error();
  }
};

// Tails: tokens across warps, warpgroups, blocks and groups, vocabulary entries across boxes and tiles,
// hidden across k blocks and shorter than the ring; rounds of the persistent kernel, which wraps barrier
// phases.
TEST_F(HopperGemm, AnySize) {
  for (const auto& [tokens, vocab, student, teacher] :
       std::vector<std::tuple<Index, Index, Index, Index>>{{1, 1, 1, 1},
                                                           {3, 5, 7, 2},
                                                           {17, 63, 64, 65},
                                                           {64, 64, 128, 16},
                                                           {65, 65, 40, 33},
                                                           {128, 256, 256, 320},
                                                           {129, 257, 17, 600},
                                                           {300, 700, 100, 72},
                                                           {2, 40003, 9, 24},
                                                           {520, 2100, 24, 8},
                                                           {2310, 1300, 72, 8}}) {
    Recipe r;
    r.tokens = tokens, r.vocab = vocab, r.student_hidden = student, r.teacher_hidden = teacher;
    check(r);
  }
}

// Gaps between rows that are read: they hold NaN. Padding of the vocabulary that is counted.
TEST_F(HopperGemm, LayoutsAndValidVocab) {
  for (const Index pad : {8, 24}) {
    Recipe r;
    r.tokens = 70, r.vocab = 600, r.student_hidden = 40, r.teacher_hidden = 70;
    check(r, pad);
    for (const Index valid : {1, 64, 257, 599}) {
      r.options.valid_vocab = valid;
      check(r, pad);
    }
  }
}

// Instructions for the wrong format; rounding that truncates; errors that grow along hidden.
TEST_F(HopperGemm, NormalInputs) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const double spread : {0.3, 5.0}) {
      Recipe r;
      r.values = Recipe::Values::normal;
      r.student_dtype = r.teacher_dtype = dtype;
      r.tokens = 140, r.vocab = 1003, r.student_hidden = 320, r.teacher_hidden = 96, r.spread = spread;
      check(r);
    }
  }
}

// Log-sum-exps near 100, whose reference in fp32 would be off by 4e-6 if a rounding of it entered.
TEST_F(HopperGemm, UniformInputs) {
  Recipe r;
  r.values = Recipe::Values::uniform;
  r.tokens = 40, r.vocab = 2000, r.student_hidden = 400, r.teacher_hidden = 128;
  check_log_sum_exps(make_padded_case(r, 0));
}

// Wrong gradients of a baseline would be harmless; a crash would not.
TEST_F(HopperGemm, WithGradientsItIsGemm) {
  for (const char* stage : {"hopper-gemm", "hopper-log-sum-exp"}) {
    Recipe r;
    DeviceCase device(make_padded_case(r, 0), stage, true);
    const StageResult result = device.run();
    EXPECT_TRUE(std::isnan(result.loss));
    for (const float loss : result.token_loss) EXPECT_TRUE(std::isnan(loss));
  }
}

// What the kernel cannot do is refused in words, not computed wrongly.
TEST_F(HopperGemm, Refusals) {
  for (const char* stage : {"hopper-gemm", "hopper-log-sum-exp"}) {
    Recipe r;
    r.pad = 1;
    EXPECT_THROW(DeviceCase(make_case(r), stage, false), StageUnsupported);
    r.pad = 0;
    r.teacher_dtype = DType::f16;
    EXPECT_THROW(DeviceCase(make_case(r), stage, false), StageUnsupported);
    r.student_dtype = r.teacher_dtype = DType::f32;
    EXPECT_THROW(DeviceCase(make_case(r), stage, false), StageUnsupported);
  }
}

}  // namespace
}  // namespace fljsd::testing
