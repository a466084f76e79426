// SPDX-License-Identifier: Apache-2.0
// The audit's plan, attribution and sentences, without the program around them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>
#include <set>

#include <nlohmann/json.hpp>

#include "verify/audit/attribution.h"
#include "verify/audit/audit.h"
#include "verify/audit/render.h"
#include "verify/judge/metrics.h"
#include "verify/report/terminal.h"

namespace fljsd {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

// Fault: a sample that repeats tokens, leaves the range, or changes from run to run.
TEST(AuditPlan, SamplesAreDistinctSortedAndReproducible) {
  for (const Index size : {1, 7, 1024}) {
    for (const Index count : {0, 1, 5, 2000}) {
      const std::vector<Index> chosen = sample(size, count, 4);
      EXPECT_EQ(static_cast<Index>(chosen.size()), std::min(size, count));
      EXPECT_TRUE(std::adjacent_find(chosen.begin(), chosen.end(), std::greater_equal<>()) == chosen.end());
      for (const Index i : chosen) EXPECT_TRUE(i >= 0 && i < size);
      EXPECT_EQ(chosen, sample(size, count, 4));
    }
  }
  EXPECT_NE(sample(1024, 8, 1), sample(1024, 8, 2));
}

// Fault: a family or the published size missing from what the default promises; a full audit that samples.
TEST(AuditPlan, CoversWhatTheDefaultsPromise) {
  for (const Effort effort : {Effort::quick, Effort::standard, Effort::full}) {
    AuditRequest request;
    request.effort = effort;
    const AuditPlan plan = make_plan(request);
    std::set<int> surveyed;
    for (const Workload& workload : plan.survey) surveyed.insert(workload.spec.family);
    EXPECT_EQ(surveyed.size(), families().size());
    EXPECT_EQ(plan.candidates.size(), rounding_models().size());
    ASSERT_FALSE(plan.in_depth.empty());
    const Workload& published = plan.in_depth.front();
    EXPECT_EQ(published.spec.family, 1);
    EXPECT_EQ(published.spec.tokens, 1024);
    EXPECT_EQ(published.spec.vocab, 128256);
    EXPECT_EQ(published.spec.student_hidden, 4096);
    EXPECT_EQ(published.spec.token_rows.has_value(), effort != Effort::full);
    EXPECT_TRUE(published.attribution);
    EXPECT_GE(published.certified_rows.size(), effort == Effort::quick ? 1u : 2u);
  }
}

// Fault: sizes that are asked for and not used, or a survey larger than what was asked for.
TEST(AuditPlan, UsesTheSizesAskedFor) {
  AuditRequest request;
  request.families = {"peaked"};
  request.candidates = {"liger", "float64"};
  request.tokens = 5;
  request.hidden = 7;
  request.vocab = 11;
  const AuditPlan plan = make_plan(request);
  EXPECT_EQ(plan.candidates.size(), 2u);
  ASSERT_EQ(plan.in_depth.size(), 1u);
  EXPECT_EQ(plan.in_depth[0].spec.tokens, 5);
  EXPECT_FALSE(plan.in_depth[0].spec.token_rows);
  EXPECT_EQ(plan.in_depth[0].weight_rows.size(), 11u);
  for (const Workload& workload : plan.survey) {
    EXPECT_EQ(workload.spec.family, 5);
    EXPECT_LE(workload.spec.vocab, 11);
    EXPECT_LE(workload.spec.student_hidden, 7);
  }
  request.families = {"no-such"};
  EXPECT_THROW(make_plan(request), InvalidProblem);
}

// Fault: an attribution that does not end where the candidate is, or takes two steps as one.
TEST(Attribution, WaypointsLeadToTheTargetOneStepAtATime) {
  for (const RoundingModel& model : rounding_models()) {
    const std::vector<WaypointPipeline> way = waypoints(model.pipeline);
    EXPECT_EQ(way.back().pipeline, model.pipeline) << model.name;
    std::set<std::string> steps;
    for (const WaypointPipeline& waypoint : way) steps.insert(waypoint.step);
    EXPECT_EQ(steps.size(), way.size());
    const bool rounds_logits = model.accuracy_class == AccuracyClass::bf16_logits;
    EXPECT_EQ(way.size(), all_steps().size() + (rounds_logits ? 1 : 0)) << model.name;
    if (rounds_logits) {
      EXPECT_EQ(way[0].pipeline.logits, Storage::fp32);
      EXPECT_NE(way[1].pipeline.logits, Storage::fp32);
    }
  }
}

Result small_result(double loss, std::vector<double> token_loss, std::vector<double> input_grad) {
  Result result;
  result.loss = loss;
  result.token_loss = std::move(token_loss);
  result.student_input_grad =
      Eigen::Map<RowMajorMatrix<double>>(input_grad.data(), static_cast<Index>(result.token_loss.size()), 2);
  return result;
}

// Fault: a distance that is relative to the wrong thing; all numbers here are exact in binary.
TEST(Attribution, DistancesAreRelativeToTheTruth) {
  const Result truth = small_result(2, {1, 3}, {3, 4, 0, 0.5});
  const Result other = small_result(2.5, {1.25, 3}, {3, 4, 0, 1});
  const Errors errors = distance(truth, other, truth);
  EXPECT_EQ(errors.loss, 0.25);
  EXPECT_EQ(errors.token_loss, 0.25);
  EXPECT_DOUBLE_EQ(*errors.student_input_grad, 0.5 / std::sqrt(25.25));
  EXPECT_EQ(errors.median_token_grad, 1.0);  // the upper of the two rows: 0 and 0.5 / 0.5
  EXPECT_FALSE(errors.student_weight_grad);
  const Errors zero = zero_errors(truth);
  EXPECT_EQ(zero.loss, 1.0);
  EXPECT_EQ(zero.student_input_grad, 1.0);
  EXPECT_EQ(zero.token_loss, 3.0);
}

// Fault: NaN that counts as small; a truth that is NaN or 0 and makes a number up.
TEST(Attribution, NanIsInfinitelyFarAndNothingIsRelativeToNothing) {
  const Result truth = small_result(2, {1, 3}, {3, 4, 0, 0.5});
  Result broken = truth;
  broken.loss = nan;
  broken.student_input_grad(0, 0) = nan;
  EXPECT_EQ(distance(truth, broken, truth).loss, infinity);
  EXPECT_EQ(distance(truth, broken, truth).student_input_grad, infinity);
  EXPECT_FALSE(distance(broken, broken, broken).loss);
  EXPECT_FALSE(distance(broken, broken, broken).student_input_grad);
  const Result nothing = small_result(0, {0, 0}, {0, 0, 0, 0});
  EXPECT_FALSE(distance(nothing, truth, nothing).loss);
  EXPECT_EQ(distance(nothing, nothing, nothing).loss, 0.0);
  EXPECT_FALSE(distance(nothing, truth, nothing).median_token_grad);
}

// A report about one workload with candidates whose errors are given.
AuditReport report_about(double gradient_error, bool pass, double row_error) {
  WorkloadReport workload;
  workload.info.family = "published";
  workload.info.tokens = workload.info.judged_tokens = 4;
  workload.true_loss = 0.5;
  for (const char* name : {"coarse", "fine"}) {
    CandidateReport candidate;
    candidate.name = name;
    candidate.description = "says \"this, that\"";
    candidate.errors.loss = 1e-6;
    candidate.errors.student_input_grad = name[0] == 'c' ? gradient_error : 0.001;
    VerdictRow row;
    row.quantity = "token_loss";
    row.measure = "worst, token";
    row.error = row_error;
    row.budget = 1;
    row.ratio = row_error;
    row.pass = pass;
    candidate.verdict.rows.push_back(row);
    workload.candidates.push_back(candidate);
  }
  AuditReport report;
  report.in_depth.push_back(workload);
  report.survey.push_back(workload);
  return report;
}

bool contains(const std::vector<std::string>& sentences, const std::string& part) {
  return std::any_of(sentences.begin(), sentences.end(),
                     [&](const std::string& s) { return s.find(part) != s.npos; });
}

// Fault: a summary that says something else than the numbers.
TEST(AuditSummary, SaysWhatTheNumbersSay) {
  const auto bad = audit_summary(report_about(1.37, true, 0.5));
  EXPECT_TRUE(contains(bad, "Every candidate keeps the class"));
  EXPECT_TRUE(contains(bad, "coarse has its scalar loss within 1.0e-4 % of the truth"));
  EXPECT_TRUE(contains(bad, "137 %"));
  EXPECT_TRUE(contains(bad, "the most accurate candidate is fine: off by 0.10 %"));
  const auto good = audit_summary(report_about(0.03, true, 0.5));
  EXPECT_FALSE(contains(good, "zeros"));
  EXPECT_TRUE(contains(good, "0.10 % (fine) to 3.0 % (coarse)"));
  EXPECT_TRUE(contains(audit_summary(report_about(0.03, false, 7)), "is off by 7.00, 7.00 times the budget"));
  EXPECT_TRUE(contains(audit_summary(report_about(0.03, false, infinity)),
                       "coarse and fine return NaN or infinity where the truth is finite"));
}

// Fault: a pass although a verdict or the float64 truth failed.
TEST(AuditReport, PassesOnlyIfEverythingDoes) {
  EXPECT_TRUE(report_about(1.37, true, 0.5).pass());
  EXPECT_FALSE(report_about(1.37, false, 7).pass());
  AuditReport report = report_about(1.37, true, 0.5);
  CertifiedToken token;
  token.error = 1e-12;
  token.bound = 1e-13;
  report.in_depth[0].certified.push_back(token);
  EXPECT_FALSE(report.pass());
  EXPECT_TRUE(contains(audit_summary(report), "MISSED ITS OWN BOUND"));
  report.in_depth[0].certified[0].bound = nan;
  EXPECT_FALSE(report.pass());
}

// Fault: text that breaks the CSV, or numbers that are not JSON.
TEST(AuditReport, CsvQuotesAndJsonParses) {
  const AuditReport report = report_about(infinity, false, infinity);
  const std::string csv = audit_csv(report);
  EXPECT_NE(csv.find("\"worst, token\""), std::string::npos);
  EXPECT_NE(csv.find(",inf,"), std::string::npos);
  const auto json = nlohmann::json::parse(audit_json(report).dump());
  EXPECT_EQ(json["in_depth"][0]["candidates"][0]["errors"]["student_input_grad_relative_l2"], "inf");
  EXPECT_EQ(json["pass"], false);
  EXPECT_FALSE(audit_text(report, 80).empty());
}

// Fault: "inf" or an empty cell without a word where the truth is 0 and nothing is relative to it.
TEST(AuditReport, ATruthOfZeroHasAbsoluteErrorsEverywhere) {
  AuditRequest request;
  request.families = {"equal-rows"};
  request.candidates = {"liger"};
  request.tokens = 4;
  request.hidden = 16;
  request.vocab = 64;
  const AuditReport report = run_audit(make_plan(request), {}, [](const std::string&) {});
  const auto json = nlohmann::json::parse(audit_json(report).dump());
  EXPECT_EQ(json.dump().find("\"inf\""), std::string::npos);
  const auto& verdict = json["survey"][0]["candidates"][0]["verdict"];
  EXPECT_TRUE(verdict["metrics"]["student_input_grad"]["relative_l2"].is_null());
  EXPECT_GT(verdict["metrics"]["student_input_grad"]["absolute_l2"], 0);
  EXPECT_TRUE(verdict["metrics"]["loss"]["relative"].is_null());
  EXPECT_GT(verdict["metrics"]["loss"]["absolute"], 0);
  const std::string csv = audit_csv(report);
  EXPECT_EQ(csv.find("inf"), std::string::npos);
  EXPECT_NE(csv.find("L2 (the truth is 0)"), std::string::npos);
  // In the tables a dash, and below the heading what it means; however its line is broken.
  const std::string text = std::regex_replace(audit_text(report, 120), std::regex("\n +"), " ");
  EXPECT_NE(text.find("A dash on equal-rows: the true gradient is 0"), std::string::npos);
  EXPECT_FALSE(std::regex_search(text, std::regex("equal-rows +inf")));
  EXPECT_NE(audit_html(report).find("the truth is 0: absolute L2 errors up to"), std::string::npos);
}

// Fault: a result of NaN that makes the truth look like 0, and what an answer of zeros scores with it.
TEST(AuditReport, NanDoesNotMakeTheTruthZero) {
  const Result truth = small_result(2, {1, 3}, {3, 4, 0, 0.5});
  Result broken = truth;
  broken.student_input_grad.setConstant(nan);
  const MatrixError error = matrix_error(truth.student_input_grad, broken.student_input_grad);
  EXPECT_EQ(error.row_truth, (std::vector<double>{5, 0.5}));
  EXPECT_EQ(error.relative_l2, infinity);
}

// Fault: lines that wrap on an ordinary terminal.
TEST(AuditReport, TextFitsEightyColumns) {
  AuditRequest request;
  request.families = {"published", "disjoint"};
  request.tokens = 4;
  request.hidden = 16;
  request.vocab = 64;
  AuditReport report = run_audit(make_plan(request), {}, [](const std::string&) {});
  report.run = record_run();
  std::string line;
  for (const char c : audit_text(report, 80)) {
    if (c != '\n') {
      line += c;
      continue;
    }
    EXPECT_LE(display_width(line), 80) << line;
    line.clear();
  }
}

// Fault: errors at the published kind of inputs that no longer show what rounded logits cost. Sizes are
// small, so the numbers are not those of the published size; the order of the candidates is.
TEST(Audit, RoundedLogitsCostGradientsAndNotTheLoss) {
  AuditRequest request;
  request.families = {"published"};
  request.candidates = {"torch-compile", "fp32-logits-softplus"};
  request.tokens = 8;
  request.hidden = 512;  // logits near 128, where bf16 numbers are 1 apart
  request.vocab = 500;
  AuditPlan plan = make_plan(request);
  plan.survey.clear();
  const AuditReport report = run_audit(plan, {}, [](const std::string&) {});
  const WorkloadReport& workload = report.in_depth.at(0);
  const Errors &rounded = workload.candidates.at(0).errors, &fp32 = workload.candidates.at(1).errors;
  EXPECT_LE(*rounded.loss, 0.01);
  EXPECT_GE(*rounded.student_input_grad, 0.05);
  EXPECT_LE(*fp32.student_input_grad, 0.01);
  EXPECT_TRUE(report.pass());
  // The step that does it is named.
  const auto& steps = workload.attributions.at(0).steps;
  const auto largest = std::max_element(steps.begin(), steps.end(), [](const auto& a, const auto& b) {
    return *a.added.student_input_grad < *b.added.student_input_grad;
  });
  EXPECT_EQ(largest->name, "logits rounded");
}

}  // namespace
}  // namespace fljsd
