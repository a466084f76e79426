// SPDX-License-Identifier: Apache-2.0
// The model of a tensor core: held against what an H200 answered (data/tensor_core), and against its own
// bound.
#include "reference/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "reference/exact_dot.h"
#include "reference/parallel.h"
#include "reference/rounding/tensor_core_products.h"
#include "reference/tensor_core_bound.h"
#include "verify/audit/tensor_core_logits.h"
#include "verify/judge/budget.h"
#include "verify/probe/answers.h"
#include "verify/probe/plan.h"

namespace fljsd {
namespace {

using probe::Kind;
using probe::Products;

std::uint32_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

std::vector<std::uint16_t> bf16(std::initializer_list<double> values) {
  std::vector<std::uint16_t> codes;
  for (const double value : values) codes.push_back(bf16_from_double(value));
  return codes;
}

float hopper_dot(const std::vector<std::uint16_t>& a, const std::vector<std::uint16_t>& b, float c = 0) {
  return tensor_core_dot(hopper_tensor_core, DType::bf16, a.data(), b.data(), static_cast<Index>(a.size()),
                         c);
}

// By hand. Fault: rounding to nearest, addends that keep another number of bits, an accumulator that is added
// last.
TEST(TensorCore, WorkedExamples) {
  // Beside 1, the last bit that survives alignment is 2^-25; a product of 2^-26 vanishes.
  EXPECT_EQ(hopper_dot(bf16({1, -1, 0x1p-25}), bf16({1, 1, 1})), 0x1p-25f);
  EXPECT_EQ(hopper_dot(bf16({1, -1, 0x1p-26}), bf16({1, 1, 1})), 0);
  EXPECT_EQ(hopper_dot(bf16({-1, 0x1p-25}), bf16({1, 1}), 1), 0x1p-25f);
  // 1.5 · 1.5 = 2.25 counts as exponent 0.
  EXPECT_EQ(hopper_dot(bf16({1.5, -1.5, 0x1p-25}), bf16({1.5, 1.5, 1})), 0x1p-25f);
  // Toward zero: 1 + 3·2^-25 lies nearer to 1 + 2^-23 and gives 1; so with the signs reversed.
  EXPECT_EQ(hopper_dot(bf16({3 * 0x1p-25}), bf16({1}), 1), 1);
  EXPECT_EQ(hopper_dot(bf16({-3 * 0x1p-25}), bf16({1}), -1), -1);
  // Sixteen products of 2^-25 beside 1 are all kept, and make 2^-21; sixteen of 2^-26 are all lost.
  const std::vector<std::uint16_t> ones(16, bf16_from_double(1));
  EXPECT_EQ(hopper_dot(std::vector<std::uint16_t>(16, bf16_from_double(0x1p-25)), ones, 1), 1 + 0x1p-21f);
  EXPECT_EQ(hopper_dot(std::vector<std::uint16_t>(16, bf16_from_double(0x1p-26)), ones, 1), 1);
  // Seventeen products are two blocks: what cancels in the second does not disturb the first.
  std::vector<std::uint16_t> late(32, 0), unit(32, bf16_from_double(1));
  late[0] = bf16_from_double(0x1p-20);
  late[16] = bf16_from_double(0x1p5);
  late[17] = bf16_from_double(-0x1p5);
  EXPECT_EQ(hopper_dot(late, unit), 0x1p-20f);
  EXPECT_THROW(tensor_core_dot(hopper_tensor_core, DType::f32, ones.data(), ones.data(), 16),
               std::invalid_argument);
}

// Fault: the vectorised product errs in a lane, in padding, in a stride, or where a value is subnormal or not
// finite.
TEST(TensorCoreProducts, AreTheSingleOnes) {
  constexpr Index rows = 5, cols = 37, depth = 71, stride = 75;
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Kind kind : probe::kinds()) {
      const Products p = probe::random_gemm(dtype, kind, 17, rows, cols, stride);
      // One byte off, as tensors in files may lie.
      std::vector<std::byte> input(p.a.size() * 2 + 1), weight(p.b.size() * 2 + 1);
      std::memcpy(input.data() + 1, p.a.data(), p.a.size() * 2);
      std::memcpy(weight.data() + 1, p.b.data(), p.b.size() * 2);
      const MatrixView a{dtype, input.data() + 1, rows, depth, stride},
          b{dtype, weight.data() + 1, cols, depth, stride};
      const std::vector<Index> tokens{3, 0, 4, 4};
      const std::vector<float> all = tensor_core_products(hopper_tensor_core, a, tokens, b, cols - 2);
      ASSERT_EQ(all.size(), tokens.size() * (cols - 2));
      for (std::size_t i = 0; i < all.size(); ++i) {
        const Index token = tokens[i / (cols - 2)], v = static_cast<Index>(i) % (cols - 2);
        ASSERT_EQ(bits(all[i]), bits(tensor_core_dot(hopper_tensor_core, dtype, p.a.data() + token * stride,
                                                     p.b.data() + v * stride, depth)))
            << probe::name(kind) << ' ' << i;
      }
    }
}

// The lines of a file of data/tensor_core after the header, cut at commas.
std::vector<std::vector<std::string>> read_table(const std::string& file) {
  std::ifstream in(std::string(FLJSD_SOURCE_DIR) + "/data/tensor_core/" + file);
  std::vector<std::vector<std::string>> rows;
  std::string line;
  while (std::getline(in, line)) {
    std::vector<std::string> fields(1);
    for (const char c : line) c == ',' ? fields.emplace_back() : fields.back() += c;
    rows.push_back(fields);
  }
  if (!rows.empty()) rows.erase(rows.begin());
  return rows;
}

std::uint32_t parse_hex(const std::string& text) {
  return static_cast<std::uint32_t>(std::stoull(text, nullptr, 16));
}

// Fault: any detail of the model that an H200 does otherwise: how many products are added at once, the width
// of alignment, truncation, the accumulator's place, subnormals, zeros, infinities, NaN, overflow, underflow.
TEST(TensorCoreAnswers, FixedProbesAreAnsweredAsByTheDevice) {
  const auto rows = read_table("probes.csv");
  std::size_t i = 0;
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const probe::Probe& expected : probe::fixed_probes(dtype)) {
      ASSERT_LT(i, rows.size());
      const std::vector<std::string>& row = rows[i++];
      ASSERT_EQ(row.size(), 7u);
      const probe::Probe asked = probe::parse_probe(row[1], row[2], parse_hex(row[3]));
      // What was asked is what fixed_probes() asks.
      ASSERT_EQ(row[0], name(dtype));
      ASSERT_EQ(asked.group, expected.group);
      ASSERT_TRUE(asked.a == expected.a && asked.b == expected.b && asked.c == expected.c) << row[2];
      const std::uint32_t answer = bits(tensor_core_dot(hopper_tensor_core, dtype, asked.a.data(),
                                                        asked.b.data(), 16, std::bit_cast<float>(asked.c)));
      EXPECT_EQ(probe::hex(answer, 8), row[4])
          << row[0] << ' ' << row[1] << ": " << row[2] << " + " << row[3];
      // Fields that say nothing else say the same: without an accumulator, and by mma.sync.
      EXPECT_EQ(row[5], "");
      EXPECT_EQ(row[6], "");
    }
  EXPECT_EQ(i, rows.size());
}

// Fault: as above, where no probe looked.
TEST(TensorCoreAnswers, RandomProductsAreAnsweredAsByTheDevice) {
  const auto rows = read_table("random.csv");
  std::size_t i = 0;
  for (const probe::RandomPlan& plan : probe::random_plans()) {
    const Products p = probe::make_products(plan);
    std::vector<std::uint32_t> d(p.c.size());
    parallel_for(p.batch * p.rows, [&](Index row) {
      for (Index col = 0; col < p.cols; ++col) {
        const auto at = static_cast<std::size_t>(row * p.cols + col);
        d[at] = bits(tensor_core_dot(hopper_tensor_core, p.dtype, p.a.data() + row * p.depth,
                                     p.b.data() + (row / p.rows * p.cols + col) * p.depth, p.depth,
                                     std::bit_cast<float>(p.c[at])));
      }
    });
    for (const std::uint64_t fingerprint : probe::fingerprints(p, d)) {
      ASSERT_LT(i, rows.size());
      const std::vector<std::string>& row = rows[i++];
      ASSERT_EQ(row.size(), 4u);
      ASSERT_EQ(row[0], probe::label(plan));
      for (const int instruction : {2, 3})
        EXPECT_EQ(probe::hex(fingerprint, 16), row[static_cast<std::size_t>(instruction)])
            << row[0] << ", tiles from " << row[1];
    }
  }
  EXPECT_EQ(i, rows.size());
}

// Fault: a vectorised product that errs on data as they come, and in long sums.
TEST(TensorCoreAnswers, LogitsOfTheFamiliesAreThoseOfTheDevice) {
  const auto rows = read_table("families.csv");
  std::size_t i = 0;
  for (const probe::FamilyPlan& plan : probe::family_plans()) {
    const Products p = probe::make_products(plan);
    std::vector<Index> tokens(static_cast<std::size_t>(p.rows));
    std::iota(tokens.begin(), tokens.end(), Index{0});
    const std::vector<float> logits =
        tensor_core_products(hopper_tensor_core, {p.dtype, p.a.data(), p.rows, p.depth, p.depth}, tokens,
                             {p.dtype, p.b.data(), p.cols, p.depth, p.depth}, p.cols);
    std::vector<std::uint32_t> d;
    for (const float logit : logits) d.push_back(bits(logit));
    for (const std::uint64_t fingerprint : probe::fingerprints(p, d)) {
      ASSERT_LT(i, rows.size());
      const std::vector<std::string>& row = rows[i++];
      ASSERT_EQ(row.size(), 5u);
      ASSERT_EQ(row[0], probe::label(plan));
      for (const int instruction : {2, 3, 4})
        if (const std::string& answer = row[static_cast<std::size_t>(instruction)]; !answer.empty()) {
          EXPECT_EQ(probe::hex(fingerprint, 16), answer) << row[0] << ", tokens from " << row[1];
        }
    }
  }
  EXPECT_EQ(i, rows.size());
}

// Fault: a question that cannot be read back, or text that is taken for one.
TEST(TensorCoreAnswers, QuestionsAreReadBack) {
  for (const char* text : {"", "0:3f80*bf80", "0-15:0001*8000", "3:3f80*3f80 5-6:0000*8000 15:ffff*0000"})
    EXPECT_EQ(probe::to_text(probe::parse_probe("", text, 0)), text);
  for (const char* text : {"16:3f80*bf80", "2-1:3f80*bf80", "0:3f80", "0:3f80*", "x", "0:3f80*bf80 ",
                           "0;3f80*bf80", "0:3f80*bf801"})
    EXPECT_THROW(probe::parse_probe("", text, 0), std::invalid_argument) << text;
}

struct Drawn {
  DType dtype;
  Index depth;
  std::vector<std::uint16_t> a, b;
  float c;
};

// Operands of any kind but those with infinities and NaN.
Drawn draw() {
  const auto dtype = *rc::gen::element(DType::bf16, DType::f16);
  const auto kind = *rc::gen::element(Kind::narrow, Kind::medium, Kind::wide, Kind::sparse, Kind::cancelling,
                                      Kind::cancelled_by_c, Kind::powers, Kind::underflow, Kind::ruled_by_c);
  const Index depth = *rc::gen::element<Index>(16, 64, 512);
  const Products p = probe::random_products(dtype, kind, *rc::gen::arbitrary<std::uint64_t>(), 1, depth);
  const Index row = *rc::gen::resize(100, rc::gen::inRange<Index>(0, 64));
  return {dtype,
          depth,
          {p.a.begin() + row * depth, p.a.begin() + (row + 1) * depth},
          {p.b.begin(), p.b.begin() + depth},
          std::bit_cast<float>(p.c[static_cast<std::size_t>(row * 8)])};
}

BoundedSum run(const Drawn& d) {
  return tensor_core_dot_with_bound(hopper_tensor_core, d.dtype, d.a.data(), d.b.data(), d.depth, d.c);
}

double error_of(const Drawn& d, float value) {
  const ExactValue exact =
      exact_dot(VectorView{d.dtype, d.a.data(), d.depth}, VectorView{d.dtype, d.b.data(), d.depth});
  return std::abs(
      (exact + ExactValue(static_cast<double>(d.c)) - ExactValue(static_cast<double>(value))).to<double>());
}

// Fault: a bound that forgets a truncation, or is not a bound at all.
RC_GTEST_PROP(TensorCore, ErrorIsWithinTheBoundOfWhatWasDropped, ()) {
  const Drawn d = draw();
  const BoundedSum sum = run(d);
  RC_PRE(std::isfinite(sum.value));
  RC_ASSERT(error_of(d, sum.value) <= sum.error);
}

// Fault: a bound of zero where bits were lost, or a positive one where none were.
RC_GTEST_PROP(TensorCore, SumsOfSmallIntegersAreExact, ()) {
  Drawn d{DType::bf16, 64, {}, {}, 0};
  const std::uint64_t seed = *rc::gen::arbitrary<std::uint64_t>();
  const Products p = probe::random_products(d.dtype, Kind::narrow, seed, 1, 64);
  for (Index k = 0; k < 64; ++k) {  // integers up to 128: sums stay below 2^20
    d.a.push_back(bf16_from_double(std::round(bf16_to_double(p.a[static_cast<std::size_t>(k)]) * 16)));
    d.b.push_back(bf16_from_double(std::round(bf16_to_double(p.b[static_cast<std::size_t>(k)]) * 16)));
  }
  const BoundedSum sum = run(d);
  RC_ASSERT(sum.error == 0);
  RC_ASSERT(error_of(d, sum.value) == 0);
}

// Truncation is toward zero, so it treats both signs alike. Fault: truncation toward minus infinity.
RC_GTEST_PROP(TensorCore, NegatingEverythingNegatesTheSum, ()) {
  Drawn d = draw();
  const float sum = run(d).value;
  for (std::uint16_t& a : d.a) a ^= 0x8000;
  d.c = -d.c;
  const float negated = run(d).value;
  RC_ASSERT(negated == -sum);  // also where both are zero, whose sign is not negated
}

// Fault: an order of summation inside a block.
RC_GTEST_PROP(TensorCore, OrderInsideABlockDoesNotMatter, ()) {
  Drawn d = draw();
  const float sum = run(d).value;
  for (Index first = 0; first < d.depth; first += 16) {
    std::reverse(d.a.begin() + first, d.a.begin() + first + 16);
    std::reverse(d.b.begin() + first, d.b.begin() + first + 16);
  }
  RC_ASSERT(bits(run(d).value) == bits(sum));
}

// Σ |a|·|b| and |c|, subnormal factors counted as the smallest normal number.
double absolute_of(const Drawn& d) {
  const double smallest = std::ldexp(1.0, format_of(d.dtype).min_exponent);
  const auto size = [&](std::uint16_t code) {
    const double x = std::abs(load(d.dtype, &code, 0));
    return x == 0 ? 0 : std::max(x, smallest);
  };
  double sum = std::abs(static_cast<double>(d.c));
  for (std::size_t k = 0; k < d.a.size(); ++k) sum += size(d.a[k]) * size(d.b[k]);
  return sum * (1 + 0x1p-40);  // it was added up in double
}

// Fault: an a-priori bound that a sum breaks, or that is smaller than what was dropped may be.
RC_GTEST_PROP(TensorCoreError, BoundsWhatWasDropped, ()) {
  const Drawn d = draw();
  const BoundedSum sum = run(d);
  const double bound = tensor_core_error(hopper_tensor_core, static_cast<double>(d.depth), absolute_of(d));
  RC_ASSERT(sum.error <= bound);
  RC_ASSERT(bound == INFINITY || error_of(d, sum.value) <= bound);
}

// After a sum of 1, blocks of sixteen products of nearly 2^-25, which are lost.
Drawn stagnating(Index depth) {
  const auto size = static_cast<std::size_t>(depth);
  Drawn d{DType::bf16, depth, std::vector<std::uint16_t>(size, bf16_from_double(0x1.fep-13)),
          std::vector<std::uint16_t>(size, bf16_from_double(0x1p-13)), 0};
  std::fill_n(d.a.begin(), 16, std::uint16_t{0});
  d.a[0] = d.b[0] = bf16_from_double(1);
  return d;
}

// Fault: a statistical budget that a tensor core breaks, because truncation errs in one direction and by more
// than a unit of the accumulator for each block.
TEST(TensorCoreError, IsWithinTheBudgetOfAClass) {
  constexpr Index depth = 65536;
  const Drawn d = stagnating(depth);
  const double partial = 1 + 0x1p-9;  // every partial sum lies between 1 and that
  DotScale scale;
  scale.terms = depth;
  scale.total = scale.absolute = partial;
  scale.square = scale.partial_square = partial * partial;
  const auto fp32 = std::find_if(contracts().begin(), contracts().end(), [](const ClassContract& c) {
    return c.accuracy_class == AccuracyClass::fp32_logits;
  });
  ASSERT_NE(fp32, contracts().end());
  DotArithmetic arithmetic = fp32->arithmetic.dot;
  arithmetic.lambda = 8;
  EXPECT_LE(error_of(d, run(d).value), dot_error(scale, arithmetic));
}

// Fault: an audit that shows another logit's bound, or claims tensor cores for operands that they do not
// take.
TEST(TensorCoreLogits, KeepTheirBoundsInAnAudit) {
  CaseSpec spec;
  spec.family = find_family("wide-exponent").number;
  spec.student_hidden = 100;
  spec.teacher_hidden = 33;
  const Case c = make_case(spec);
  const std::vector<Index> tokens{1, 5}, entries{0, 7, 31};
  const auto logits = tensor_core_logits(c.problem(), tokens, entries);
  ASSERT_TRUE(logits.has_value());
  EXPECT_EQ(logits->logits, 12);
  EXPECT_TRUE(logits->kept());
  EXPECT_LE(logits->error, logits->dropped);
  EXPECT_LE(logits->dropped, logits->a_priori);
  spec.dtype = DType::f32;
  EXPECT_FALSE(tensor_core_logits(make_case(spec).problem(), tokens, entries).has_value());
}

// Fault: a bound that is far from what can happen. After a sum of 1, each block loses sixteen products of
// nearly 2^-25: 4/5 of the bound's factor, 255 of 256 times.
TEST(TensorCoreError, IsApproached) {
  constexpr Index depth = 4096;
  const Drawn d = stagnating(depth);
  const BoundedSum sum = run(d);
  EXPECT_EQ(sum.value, 1);
  const double bound = tensor_core_error(hopper_tensor_core, depth, absolute_of(d));
  EXPECT_LE(error_of(d, sum.value), bound);
  EXPECT_GE(error_of(d, sum.value), 0.79 * bound);
}

}  // namespace
}  // namespace fljsd
