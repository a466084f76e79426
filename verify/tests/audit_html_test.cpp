// SPDX-License-Identifier: Apache-2.0
// The audit's page and what it is built of: markup, axis, histogram. check_page.py reads a whole page with an
// XML parser.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <regex>

#include "verify/audit/audit.h"
#include "verify/audit/findings.h"
#include "verify/audit/histogram.h"
#include "verify/audit/render.h"
#include "verify/audit/svg.h"
#include "verify/audit/svg_axis.h"
#include "verify/cases/families.h"

namespace fljsd {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

// Fault: text that ends an element or an attribute early, or a byte that no XML parser takes.
TEST(Markup, EscapesTextAndAttributes) {
  EXPECT_EQ(Markup("a<b> & \"c\" 'd'").str(), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
  EXPECT_EQ(Markup(std::string("a\0b\x1b", 4)).str(), "a\uFFFDb\uFFFD");
  EXPECT_EQ(element("a", {{"href", "#\"><script>"}}, "x").str(),
            "<a href=\"#&quot;&gt;&lt;script&gt;\">x</a>");
  EXPECT_EQ(element("p", {}, {"1 < 2", element("br", {}), element("b", {}, "&")}).str(),
            "<p>1 &lt; 2<br/><b>&amp;</b></p>");
}

// Fault: "nan" as a coordinate, which a browser draws at 0; thousands of digits nobody sees.
TEST(Markup, CoordinatesAreShortAndFinite) {
  EXPECT_EQ(percent_of_width(12.5), "12.5%");
  EXPECT_EQ(percent_of_width(100.0 / 3), "33.33%");
  EXPECT_EQ(Value(-0.001).str(), "0");
  EXPECT_EQ(Value(120).str(), "120");
  for (const double x : {nan, infinity, -infinity}) {
    EXPECT_THROW(Value{x}, std::logic_error);
    EXPECT_THROW(percent_of_width(x), std::logic_error);
  }
}

// Fault: decades cut off, or an axis of no length.
TEST(LogAxis, HoldsWhatItIsGiven) {
  const LogAxis axis(std::vector<double>{3e-7, 0.02, nan, infinity, 0, -1});
  EXPECT_EQ(axis.low(), -7);
  EXPECT_EQ(axis.high(), -1);
  EXPECT_EQ(LogAxis(std::vector<double>{1e-3}).low(), -3);
  EXPECT_EQ(LogAxis(std::vector<double>{1e-3}).high(), -2);
  EXPECT_LT(LogAxis(std::vector<double>{}).low(), LogAxis(std::vector<double>{}).high());
  EXPECT_EQ(LogAxis(std::vector<double>{5e-324, 2e3}, 10).low(), -6);
  EXPECT_THROW(LogAxis(2, 2), std::logic_error);
}

// Fault: labels that are not equally spaced, too many to read, or not on the scale.
RC_GTEST_PROP(LogAxis, TicksAreEquallySpacedAndFew, ()) {
  const int low = *rc::gen::resize(1000, rc::gen::inRange(-320, 300));
  const int high = low + *rc::gen::resize(1000, rc::gen::inRange(1, 30));
  const int most = *rc::gen::elementOf(std::vector<int>{4, 7, 24});
  const std::vector<int> ticks = LogAxis(low, high).ticks(most);
  RC_ASSERT(static_cast<int>(ticks.size()) <= most);
  for (const int tick : ticks) RC_ASSERT(low <= tick && tick <= high);
  for (std::size_t i = 2; i < ticks.size(); ++i) RC_ASSERT(ticks[i] - ticks[i - 1] == ticks[1] - ticks[0]);
  for (const int tick : ticks) RC_ASSERT(ticks.size() < 2 || tick % (ticks[1] - ticks[0]) == 0);
}

// Fault: a value drawn off the page, on the wrong side of another one, or among numbers though it is none.
RC_GTEST_PROP(LogAxis, PlacesAreOrderedAndOnThePage, (std::uint64_t a_bits, std::uint64_t b_bits)) {
  const double a = std::abs(std::bit_cast<double>(a_bits)), b = std::abs(std::bit_cast<double>(b_bits));
  const LogAxis axis(-12, 3);
  for (const double x : {a, b, 0.0, infinity}) {
    const double place = axis.place(x);
    RC_ASSERT(place >= 0 && place <= 100);
    if (axis.on_scale(x)) RC_ASSERT(LogAxis::left <= place && place <= LogAxis::right);
    RC_ASSERT((place == LogAxis::not_finite_place) == !std::isfinite(x));
    RC_ASSERT((place == LogAxis::zero_place) == (x == 0));
  }
  if (std::isfinite(a) && std::isfinite(b)) RC_ASSERT((a <= b) == (axis.place(a) <= axis.place(b)) || a > b);
}

TEST(LogAxis, WritesPowersOfTen) {
  EXPECT_EQ(power_of_ten(-15), "10⁻¹⁵");
  EXPECT_EQ(power_of_ten(0), "1");
  EXPECT_EQ(power_of_ten(1), "10");
  EXPECT_EQ(power_of_ten(20), "10²⁰");
}

// Fault: values counted twice, lost, or in a neighbour's bin.
RC_GTEST_PROP(Histogram, CountsEveryValueOnceAndInItsBin, ()) {
  const auto errors = *rc::gen::container<std::vector<double>>(
      rc::gen::map(rc::gen::arbitrary<std::uint64_t>(),
                   [](std::uint64_t bits) { return std::abs(std::bit_cast<double>(bits)); }));
  const Histogram h = histogram(errors);
  RC_ASSERT(h.total == errors.size());
  RC_ASSERT(std::accumulate(h.counts.begin(), h.counts.end(), h.zero + h.not_finite) == h.total);
  for (std::size_t b = 0; b < h.counts.size(); ++b) {
    const auto inside = std::count_if(errors.begin(), errors.end(), [&](double error) {
      return std::isfinite(error) && error > 0 && h.low(b) <= error && error < h.high(b);
    });
    RC_ASSERT(h.counts[b] == static_cast<std::size_t>(inside));
  }
  if (!h.counts.empty()) RC_ASSERT(h.counts.front() > 0 && h.counts.back() > 0);
}

TEST(Histogram, PowersOfTenBeginTheirBins) {
  const Histogram h = histogram(std::vector<double>{1e-5, 0.001, 1, 1000, 0, infinity, nan});
  EXPECT_EQ(h.zero, 1u);
  EXPECT_EQ(h.not_finite, 2u);
  EXPECT_EQ(h.low(0), 1e-5);
  EXPECT_EQ(h.counts.front(), 1u);
  EXPECT_EQ(h.counts.back(), 1u);
}

// A report with every family, whose second candidate returns NaN on one of them.
AuditReport report_of_all_families() {
  AuditReport report;
  const char* const evil = "<b>&\"two\"";
  const AccuracyClass classes[] = {AccuracyClass::bf16_logits, AccuracyClass::fp32_logits};
  const char* const names[] = {"one", evil};
  for (int c = 0; c < 2; ++c) {
    CandidateInfo info;
    info.name = names[c];
    info.accuracy_class = classes[c];
    info.places = {{"logits", "bf16"}, {"log-softmax", ""}};
    info.guarded = c == 0;
    report.candidates.push_back(info);
  }
  for (const Family& family : families()) {
    WorkloadReport workload;
    workload.info.family = family.name;
    workload.info.family_number = family.number;
    workload.info.tokens = workload.info.judged_tokens = 4;
    workload.zero.student_input_grad = 1;
    const bool broken = workload.info.family == "disjoint";
    if (broken) workload.info.impossible_entries = 3;
    for (int c = 0; c < 2; ++c) {
      CandidateReport candidate;
      candidate.name = names[c];
      candidate.description = "<i>says & does</i>";
      candidate.verdict.accuracy_class = classes[c];
      for (const char* quantity : {"loss", "token_loss", "student_input_grad"}) {
        VerdictRow row;
        row.quantity = quantity;
        row.measure = row.quantity == "loss"         ? "absolute"
                      : row.quantity == "token_loss" ? "worst token"
                                                     : "relative L2";
        row.error = c == 1 && broken ? infinity : 1e-5;
        row.budget = 1e-3;
        row.ratio = row.error / row.budget;
        row.zero_error = 1;
        row.bf16_budget = 2e-3;
        row.pass = row.ratio <= 1;
        candidate.verdict.rows.push_back(row);
      }
      candidate.verdict.token_ratio = {0, 1e-4, broken ? infinity : 0.1, nan};
      candidate.errors.student_input_grad = candidate.verdict.rows[2].error;
      workload.candidates.push_back(candidate);
    }
    report.survey.push_back(workload);
  }
  WorkloadReport deep = report.survey.front();
  AttributionStep step;
  step.name = "logits <rounded>";
  step.does = "a & b";
  step.added.student_input_grad = infinity;
  step.total.student_input_grad = nan;
  step.added.loss = 0;
  deep.attributions.push_back({evil, {step}});
  CertifiedToken token;
  token.enclosure.lo_text = "6.9314e-1";
  token.enclosure.hi_text = "6.9315e-1";
  token.error = nan;
  token.bound = 1e-16;
  deep.certified.push_back(token);
  deep.true_loss = nan;
  report.in_depth.push_back(deep);
  return report;
}

// Fault: a family, a budget or a line that is missing; a candidate's name that becomes markup.
TEST(AuditPage, ShowsEveryFamilyWithBudgetsAndLines) {
  const std::string page = audit_html(report_of_all_families());
  // Three quantities have drawings with a row for each family, two candidates a budget in each, and the
  // workload in depth another row for each quantity.
  const std::size_t rows = 3 * families().size() + 3;
  for (const Family& family : families())
    EXPECT_GE(count(page, "<span class=\"name\">" + std::string(family.name) + "</span>"), 3u) << family.name;
  EXPECT_EQ(count(page, "<line class=\"budget bf16\""), rows);
  EXPECT_EQ(count(page, "<line class=\"budget fp32\""), rows);
  // In every drawing's rows, its legend and every histogram that has a line to be compared with.
  EXPECT_GE(count(page, "class=\"zero-line\""), rows);
  EXPECT_GE(count(page, "class=\"bf16-line\""), rows);
  for (const char* anchor :
       {"candidates", "ratios", "errors", "tokens", "depth-0", "rounding", "terms", "record"}) {
    EXPECT_EQ(count(page, "<section id=\"" + std::string(anchor) + "\""), 1u) << anchor;
    EXPECT_EQ(count(page, "href=\"#" + std::string(anchor) + "\""), 1u) << anchor;
  }
  EXPECT_EQ(page.find("<b>&"), std::string::npos);
  EXPECT_EQ(page.find("<i>says"), std::string::npos);
  EXPECT_NE(page.find("&lt;b&gt;&amp;&quot;two&quot;"), std::string::npos);
  EXPECT_EQ(page.find("<script"), std::string::npos);
}

// Fault: geometry of NaN and infinity; a verdict that hides them; a failure without its reason.
TEST(AuditPage, SaysNotFiniteInWordsAndWhy) {
  const std::string page = audit_html(report_of_all_families());
  EXPECT_FALSE(
      std::regex_search(page, std::regex(R"re((x|y|x1|x2|y1|y2|width|height|d)="[^"]*(nan|inf))re")));
  EXPECT_NE(page.find("1 of 2 candidates breaks the accuracy class it declares"), std::string::npos);
  EXPECT_NE(page.find("✕ NaN or ∞"), std::string::npos);
  EXPECT_NE(page.find("In disjoint inputs some biases are −∞"), std::string::npos);
  EXPECT_NE(page.find("✕ MISSED"), std::string::npos);
  EXPECT_EQ(page.find(">nan<"), std::string::npos);
  EXPECT_EQ(page.find(">inf<"), std::string::npos);
}

// Fault: a page of a report that lacks a part, or of an empty one, that cannot be made.
TEST(AuditPage, LacksWhatTheReportLacks) {
  AuditReport report = report_of_all_families();
  report.in_depth.clear();
  EXPECT_EQ(audit_html(report).find("depth-0"), std::string::npos);
  report = report_of_all_families();
  report.survey.clear();
  report.candidates.clear();
  const std::string page = audit_html(report);
  EXPECT_EQ(page.find("id=\"ratios\""), std::string::npos);
  EXPECT_NE(page.find("id=\"depth-0\""), std::string::npos);
  EXPECT_NE(audit_html({}).find("Nothing was judged"), std::string::npos);
}

// Fault: relative errors of a truth that is 0, drawn on the axis of the others.
TEST(AuditPage, ShowsAbsoluteErrorsWhereTheTruthIsZero) {
  AuditReport report = report_of_all_families();
  for (WorkloadReport& workload : report.survey) {
    if (workload.info.family != "equal-rows") continue;
    for (CandidateReport& candidate : workload.candidates) {
      candidate.verdict.rows[2].measure = "L2 (the truth is 0)";
      candidate.verdict.rows[2].zero_error = 0;
    }
  }
  const std::string page = audit_html(report);
  EXPECT_NE(page.find("the truth is 0: absolute L2 errors up to 1.0e-5, at most 0.010 of the budget"),
            std::string::npos);
}

// Fault: NaN held against candidates in a drawing where nothing can be judged.
TEST(AuditPage, DrawsNoNanWhereNothingIsJudged) {
  AuditReport report = report_of_all_families();
  for (WorkloadReport& workload : report.survey) {
    if (workload.info.family != "overflow") continue;
    for (CandidateReport& candidate : workload.candidates) {
      VerdictRow& row = candidate.verdict.rows[2];
      row.judged = false;
      row.error = infinity;
      row.note = "gradients are not judged: student_input holds infinity";
    }
  }
  EXPECT_NE(audit_html(report).find("<p class=\"instead\">gradients are not judged"), std::string::npos);
}

// Fault: a cause told where the candidate's arithmetic does not have it, or of a family that lacks it.
TEST(Findings, NamesACauseOnlyWhereItIsOne) {
  AuditReport report = report_of_all_families();
  std::vector<NotFinite> groups = not_finite(report);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].families, std::set<std::string>{"disjoint"});
  EXPECT_EQ(groups[0].causes.size(), 1u);
  report.candidates[1].guarded = true;
  EXPECT_TRUE(not_finite(report)[0].causes.empty());
  report = report_of_all_families();
  for (WorkloadReport& workload : report.survey) workload.info.impossible_entries = 0;
  EXPECT_TRUE(not_finite(report)[0].causes.empty());
}

// Fault: the models' inputs counted wrongly, so that the reason for NaN is not found.
TEST(Findings, ExplainsTheUnguardedModels) {
  AuditRequest request;
  request.families = {"disjoint", "ignored-labels"};
  request.candidates = {"liger", "fp32-logits"};
  request.tokens = 6;
  request.hidden = 8;
  request.vocab = 40;
  AuditPlan plan = make_plan(request);
  plan.in_depth.clear();
  for (Workload& workload : plan.survey) workload.spec.strength = workload.spec.family == 6 ? infinity : 0.5;
  const AuditReport report = run_audit(plan, {}, [](const std::string&) {});
  const std::vector<NotFinite> groups = not_finite(report);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].candidates, std::vector<std::string>{"liger"});
  EXPECT_EQ(groups[0].families, (std::set<std::string>{"disjoint", "ignored-labels"}));
  EXPECT_EQ(groups[0].causes.size(), 2u);
}

}  // namespace
}  // namespace fljsd
