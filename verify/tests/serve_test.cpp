// SPDX-License-Identifier: Apache-2.0
// The C++ example as an engine meets it: through serve() and a process of its own.
#include "verify/candidates/serve.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "verify/candidates/external.h"
#include "verify/candidates/line_process.h"
#include "verify/cases/families.h"
#include "verify/cases/layout.h"
#include "verify/cases/safetensors.h"
#include "verify/judge/verdict.h"

namespace fljsd {
namespace {

using std::chrono::seconds;

TEST(ServeTest, DeclaresWhatTheCandidateDeclares) {
  ExternalCandidate candidate(FLJSD_CPP_CANDIDATE);
  const Declaration declaration = candidate.declaration();
  EXPECT_EQ(declaration.accuracy_class, AccuracyClass::fp32_logits);
  EXPECT_TRUE(declaration.deterministic);
  EXPECT_EQ(declaration.lacks, (FeatureSet{Feature::grad, Feature::f64}));
}

// Catches: losses that are lost, reordered or rounded between the function and the result file.
TEST(ServeTest, AnswersKeepTheBudgetsOfTheClass) {
  ExternalCandidate candidate(FLJSD_CPP_CANDIDATE);
  for (const Reduction reduction : {Reduction::batchmean, Reduction::sum, Reduction::none}) {
    CaseSpec spec;
    spec.family = find_family("kaiming").number;
    spec.tokens = 5;
    spec.with_bias = true;
    spec.options.beta = 0.25;
    spec.options.reduction = reduction;
    const Case c = make_case(spec);
    const Outcome outcome = candidate.compute(c, {true, false});
    const auto* answer = std::get_if<Answer>(&outcome);
    ASSERT_NE(answer, nullptr);
    EXPECT_EQ(answer->result.loss.has_value(), reduction != Reduction::none);
    const Truth truth{linear_jsd<double>(c.problem(), c.options)};
    const Verdict verdict = judge(c, truth, {}, answer->result, AccuracyClass::fp32_logits);
    EXPECT_TRUE(verdict.pass()) << format(verdict);
    ASSERT_NE(verdict.worst(), nullptr);
  }
}

// Catches: a layout that is lost on the way to the program, or shifts what it reads.
TEST(ServeTest, PaddedAndUnalignedTensorsHaveTheSameAnswer) {
  ExternalCandidate candidate(FLJSD_CPP_CANDIDATE);
  candidate.declaration();
  ASSERT_TRUE(candidate.takes_views());
  CaseSpec spec;
  spec.tokens = 5;
  spec.with_bias = true;
  const Case c = make_case(spec);
  const LaidOutCase laid_out(c, {3, 5});
  const Outcome plain = candidate.compute(c, {true, false});
  const Outcome padded = candidate.compute_views(laid_out.problem(), c.options, {true, false});
  ASSERT_TRUE(std::holds_alternative<Answer>(plain) && std::holds_alternative<Answer>(padded));
  EXPECT_EQ(std::get<Answer>(plain).result.token_loss, std::get<Answer>(padded).result.token_loss);
}

// Catches: an empty batch whose result lacks a tensor because it has no elements.
TEST(ServeTest, AnEmptyBatchHasAnAnswer) {
  ExternalCandidate candidate(FLJSD_CPP_CANDIDATE);
  CaseSpec spec;
  spec.tokens = 0;
  const Outcome outcome = candidate.compute(make_case(spec), {true, false});
  const auto* answer = std::get_if<Answer>(&outcome);
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(answer->result.loss, 0.0);
}

// Catches: a program that dies of a request that it does not understand, or of a file that is not there.
TEST(ServeTest, BadRequestsAreErrorsAndTheNextOneIsAnswered) {
  LineProcess process(FLJSD_CPP_CANDIDATE);
  std::string reply;
  for (const char* request :
       {"nonsense", "{}", R"({"case": "/nowhere", "result": "/nowhere", "want": []})"}) {
    ASSERT_TRUE(process.write_line(request, seconds(10)));
    ASSERT_EQ(process.read_line(reply, seconds(10)), LineProcess::Read::line) << request;
    EXPECT_TRUE(reply.starts_with(R"({"error":)")) << reply;
  }
  ASSERT_TRUE(process.write_line(R"({"hello": 1})", seconds(10)));
  ASSERT_EQ(process.read_line(reply, seconds(10)), LineProcess::Read::line);
  EXPECT_NE(reply.find("fp32-logits"), std::string::npos) << reply;
  EXPECT_TRUE(process.close(seconds(10)));
}

}  // namespace
}  // namespace fljsd
