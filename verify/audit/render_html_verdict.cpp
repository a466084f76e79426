// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "verify/audit/findings.h"
#include "verify/audit/render.h"
#include "verify/audit/render_html.h"
#include "verify/report/number.h"

namespace fljsd::html {
namespace {

// All workloads of a report.
std::vector<const WorkloadReport*> workloads(const AuditReport& report) {
  std::vector<const WorkloadReport*> all;
  for (const auto* part : {&report.survey, &report.in_depth})
    for (const WorkloadReport& workload : *part) all.push_back(&workload);
  return all;
}

// One candidate over all workloads.
struct Standing {
  CandidateReport const* report = nullptr;  // the first, for name, description and class
  std::size_t position = 0;                 // in each workload
  std::size_t cases = 0, broken = 0;
  const VerdictRow* worst = nullptr;  // with the largest finite ratio
  std::string worst_family;
};

std::vector<Standing> standings(const AuditReport& report) {
  std::vector<Standing> all;
  for (const WorkloadReport* workload : workloads(report)) {
    for (std::size_t i = 0; i < workload->candidates.size(); ++i) {
      const CandidateReport& candidate = workload->candidates[i];
      auto at = std::find_if(all.begin(), all.end(),
                             [&](const Standing& s) { return s.report->name == candidate.name; });
      if (at == all.end()) at = all.insert(all.end(), Standing{&candidate, i, 0, 0, nullptr, ""});
      ++at->cases;
      at->broken += candidate.pass() ? 0 : 1;
      for (const VerdictRow& row : candidate.verdict.rows) {
        if (!row.judged || !std::isfinite(row.ratio) || (at->worst && row.ratio <= at->worst->ratio))
          continue;
        at->worst = &row;
        at->worst_family = workload->info.family;
      }
    }
  }
  return all;
}

std::string headline(const std::vector<Standing>& all) {
  const auto broken = static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [](const Standing& s) { return s.broken > 0; }));
  if (all.empty()) return "Nothing was judged";
  if (broken == 0)
    return all.size() == 1
               ? "The candidate keeps the accuracy class it declares"
               : fmt::format("All {} candidates keep the accuracy class they declare", all.size());
  return fmt::format("{} of {} candidates {} the accuracy class {}", broken, all.size(),
                     broken == 1 ? "breaks" : "break", broken == 1 ? "it declares" : "they declare");
}

Markup strong(const std::string& text) {
  return element("strong", {}, text);
}

// Why candidates fail: the cause first, then where they stand otherwise.
Markup why(const AuditReport& report, const std::vector<Standing>& all) {
  Markup out;
  for (const NotFinite& group : not_finite(report)) {
    Markup text = {strong(listed(group.candidates)),
                   fmt::format(" {} NaN or infinity where the truth is finite, on ",
                               group.candidates.size() == 1 ? "returns" : "return"),
                   strong(listed({group.families.begin(), group.families.end()})), " inputs."};
    out += paragraph(text);
    for (const std::string& cause : group.causes) out += paragraph(typeset(cause));
    double elsewhere = 0;
    for (const Standing& s : all)
      if (s.worst && std::count(group.candidates.begin(), group.candidates.end(), s.report->name) > 0)
        elsewhere = std::max(elsewhere, s.worst->ratio);
    if (elsewhere <= 1) {
      out += paragraph(fmt::format("Everywhere else {} the budget: at most {} of it.",
                                   group.candidates.size() == 1 ? "it stays within" : "they stay within",
                                   percent(elsewhere)));
    }
  }
  for (const BrokenClass& f : broken_classes(report)) {
    if (!f.worst) continue;
    out += paragraph({strong(f.candidate),
                      fmt::format(" breaks {} on {} inputs: {} ({}) is off by {}, {} times the budget.",
                                  name(f.accuracy_class), f.family, quantity_words(f.worst->quantity),
                                  f.worst->measure, error_text(f.worst->error), error_text(f.worst->ratio))});
  }
  return out;
}

Markup truth_card(const AuditReport& report) {
  std::size_t tokens = 0, settled = 0, missed = 0;
  double nearest = 0;
  for (const WorkloadReport* workload : workloads(report)) {
    for (const CertifiedToken& token : workload->certified) {
      ++tokens;
      settled += token.enclosure.rounds_to ? 1 : 0;
      missed += token.kept() ? 0 : 1;
      if (token.bound > 0) nearest = std::max(nearest, token.error / token.bound);
    }
  }
  Markup out =
      paragraph({strong("float64"),
                 " on the exact inputs, with a proven bound on its own error, which every budget includes."});
  if (tokens == 0) return out + paragraph("No token was certified in this run.");
  out += paragraph(
      {strong("Certified"),
       fmt::format(": interval arithmetic on exact dot products encloses the loss{} of {} token{} in depth, "
                   "{} of them tightly enough to round to one double.",
                   tokens == 1 ? "" : "es", tokens, tokens == 1 ? "" : "s", settled)});
  if (missed > 0)
    return out + element("p", {{"class", "bad"}},
                         fmt::format("✕ The float64 truth misses its own bound on {} of them.", missed));
  return out + paragraph(fmt::format("✓ float64 is within its bound on all of them, at most {} of it.",
                                     percent(nearest)));
}

Markup card(const char* heading, const Markup& content) {
  return element("div", {{"class", "card"}}, {element("h2", {}, heading), content});
}

}  // namespace

Markup verdict_header(const AuditReport& report) {
  const std::vector<Standing> all = standings(report);
  const bool pass = report.pass();
  Markup out = element("p", {{"class", "kicker"}}, "fljsd audit: numerics of fused linear + Jensen–Shannon");
  out += element("h1", {}, headline(all));
  const std::string status =
      pass ? "✓ Passed: every budget is kept, and the truth its own bound (exit status 0)."
           : "✕ Not passed (exit status 1): one broken budget on one input is enough.";
  out += element("p", {{"class", pass ? "status good" : "status bad"}}, status);

  Markup cards;
  if (Markup reasons = why(report, all); !reasons.empty()) cards += card("Why it fails", reasons);
  std::vector<std::string> summary = audit_summary(report);
  Markup judged = paragraph(summary.front());
  std::vector<std::string> models, programs;
  for (const CandidateInfo& info : report.candidates)
    (info.is_model ? models : programs).push_back(info.name);
  if (!models.empty())
    judged +=
        paragraph(fmt::format("{} CPU models of where each pipeline rounds: what its roundings cost, not "
                              "what one particular device returns.",
                              programs.empty() ? "Candidates are" : "Most candidates, but not all, are"));
  if (!programs.empty())
    judged += paragraph(fmt::format("Of {} the answers themselves were judged, from wherever {}.",
                                    listed(programs), programs.size() == 1 ? "it ran" : "they ran"));
  cards += card("What was judged", judged);
  cards += card("The truth", truth_card(report));
  out += element("div", {{"class", "cards"}}, cards);

  Markup sentences;
  for (const std::string& sentence : depth_summary(report)) sentences += element("li", {}, typeset(sentence));
  if (!sentences.empty())
    out += element("div", {{"class", "found"}},
                   {element("h2", {}, "Losses beside gradients, in depth"), element("ul", {}, sentences)});
  return element("header", {}, out);
}

Markup candidates_section(const AuditReport& report) {
  const std::vector<Standing> all = standings(report);
  if (all.empty()) return {};
  Table table("Largest test ratio: error over budget, of everything finite that was judged.",
              {{"candidate", ""},
               {"class declared", ""},
               {"verdict", ""},
               {"cases broken", "number"},
               {"largest finite ratio", "number"},
               {"where", ""},
               {"what it is a model of", ""}});
  for (const Standing& s : all) {
    const AccuracyClass c = s.report->verdict.accuracy_class;
    table.add({{candidate_label(s.position, *s.report), "nowrap"},
               {element("b", {{"class", css(c)}}, name(c)), "nowrap"},
               {verdict_label(s.broken == 0), "nowrap"},
               {fmt::format("{} of {}", s.broken, s.cases), "number nowrap"},
               {error_text(s.worst ? std::optional(s.worst->ratio) : std::nullopt), "number"},
               {s.worst ? fmt::format("{}, {}", s.worst_family, quantity_words(s.worst->quantity)) : "–", ""},
               {s.report->description, "prose"}});
  }
  return section("candidates", "Candidates", table.markup());
}

}  // namespace fljsd::html
