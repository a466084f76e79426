// SPDX-License-Identifier: Apache-2.0
// Programs in an audit: judged as the models are, and what is said where they do not answer.
#include <gtest/gtest.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "verify/audit/audit.h"
#include "verify/audit/render.h"
#include "verify/candidates/function_candidate.h"

namespace fljsd {
namespace {

const OnStep silent = [](const std::string&) {};

AuditPlan small_plan(const std::string& family, Index vocab) {
  AuditRequest request;
  request.families = {family};
  request.candidates = {"liger"};
  request.tokens = 4;
  request.hidden = 16;
  request.vocab = vocab;
  return make_plan(request);
}

Programs one_program(const Declaration& declaration, FunctionCandidate::Function function) {
  Programs programs;
  programs.push_back(
      {"mine", std::make_unique<FunctionCandidate>("exec:mine", "", declaration, std::move(function))});
  return programs;
}

// Without the gradient of a bias that the case does not have: models compute it all the same.
nlohmann::ordered_json shared_rows(const nlohmann::ordered_json& candidate) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& row : candidate["verdict"]["rows"])
    if (row["quantity"] != "student_bias_grad") rows.push_back(row);
  return rows;
}

// Fault: a program that is judged on other inputs, by another class, or by other rows of the weight gradient
// than the model whose arithmetic it has.
TEST(AuditPrograms, AreJudgedAsTheModelOfTheSameArithmetic) {
  AuditPlan plan = small_plan("lm-like", 700);  // more entries than rows of the weight gradient are judged
  ASSERT_LT(plan.in_depth.at(0).weight_rows.size(), 700u);
  const std::vector<std::string> taken{"liger"};
  const Programs programs = make_programs(taken, taken, 0);
  ASSERT_EQ(programs.at(0).name, "liger-2");
  const AuditReport report = run_audit(plan, programs, silent);
  const auto json = audit_json(report);
  for (const char* part : {"survey", "in_depth"}) {
    for (const auto& workload : json[part]) {
      ASSERT_EQ(workload["candidates"].size(), 2u);
      EXPECT_EQ(workload["candidates"][0]["errors"], workload["candidates"][1]["errors"]);
      EXPECT_EQ(shared_rows(workload["candidates"][0]), shared_rows(workload["candidates"][1]));
      EXPECT_EQ(shared_rows(workload["candidates"][1]).size(), 6u);
    }
  }
  EXPECT_EQ(json["candidates"][1]["is_model"], false);
  EXPECT_NE(audit_html(report).find("Of liger-2 the answers themselves were judged"), std::string::npos);
}

// Fault: an answer without what the program lacks, taken for a wrong one or for a right one.
TEST(AuditPrograms, WhatOneLacksIsAbsent) {
  const Declaration declaration{
      AccuracyClass::float64, true, {Feature::token_loss, Feature::grad, Feature::labels}};
  const Programs programs = one_program(declaration, [](const Case& c, const Request& request) -> Outcome {
    EXPECT_FALSE(request.token_loss || request.grad);
    Answer answer;
    answer.result.loss = linear_jsd<double>(c.problem(), c.options, {}).loss;
    return answer;
  });
  const AuditReport report = run_audit(small_plan("lm-like", 60), programs, silent);
  const CandidateReport& mine = report.in_depth.at(0).candidates.at(1);
  EXPECT_EQ(mine.errors.loss, 0);
  EXPECT_FALSE(mine.errors.token_loss || mine.errors.student_input_grad || mine.errors.student_weight_grad);
  EXPECT_TRUE(mine.pass());
  ASSERT_EQ(mine.verdict.rows.size(), 1u);

  const AuditReport labelled = run_audit(small_plan("ignored-labels", 60), programs, silent);
  int without = 0;
  for (const WorkloadReport& workload : labelled.survey) {
    const CandidateReport& candidate = workload.candidates.at(1);
    if (candidate.no_answer.empty()) continue;
    ++without;
    EXPECT_EQ(candidate.no_answer, "lacks labels");
    EXPECT_TRUE(candidate.verdict.rows.empty() && candidate.pass());
  }
  EXPECT_GT(without, 0);
  EXPECT_NE(audit_text(labelled, 400).find("mine gave no answer to"), std::string::npos);
}

// Fault: a program that fails, and passes the audit because nothing of it could be judged.
TEST(AuditPrograms, OneThatBreaksDownDoesNotPass) {
  const Programs programs = one_program({}, [](const Case&, const Request&) -> Outcome {
    return Failure{Failure::Kind::crash, "the process died before it answered", ""};
  });
  const AuditReport report = run_audit(small_plan("published", 60), programs, silent);
  EXPECT_FALSE(report.pass());
  const std::vector<std::string> sentences = audit_summary(report);
  EXPECT_TRUE(std::any_of(sentences.begin(), sentences.end(), [](const std::string& s) {
    return s ==
           "mine gave no answer to 4 cases of published inputs: crash: the process died before it answered.";
  })) << audit_text(report, 400);
  EXPECT_EQ(audit_text(report, 400).find("Every candidate keeps the class"), std::string::npos);
  EXPECT_NE(audit_csv(report).find(",no-answer,mine,"), std::string::npos);
  EXPECT_NE(audit_html(report).find("BROKEN"), std::string::npos);
}

}  // namespace
}  // namespace fljsd
