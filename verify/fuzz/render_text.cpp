// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "verify/fuzz/difference.h"
#include "verify/fuzz/render.h"
#include "verify/report/number.h"
#include "verify/report/table.h"

namespace fljsd {
namespace {

constexpr const char* quantities[] = {"token_loss", "loss", "student_input_grad", "student_weight_grad",
                                      "student_bias_grad"};

// Quoted for a POSIX shell.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

std::string plural(Index count, const std::string& one, const std::string& many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

Index of(const std::map<std::string, Index>& counts, const std::string& key) {
  const auto found = counts.find(key);
  return found == counts.end() ? 0 : found->second;
}

std::string exact(double x) {
  return std::isfinite(x) ? fmt::format("{} ({})", x, hex_float(x)) : hex_float(x);
}

std::string sizes(const Recipe& recipe) {
  const CaseSpec& spec = recipe.spec;
  const Index teacher = spec.teacher_hidden != 0 ? spec.teacher_hidden : spec.student_hidden;
  std::string text = plural(spec.tokens, "token", "tokens") + fmt::format(", hidden {}", spec.student_hidden);
  if (teacher != spec.student_hidden) text += fmt::format(" and {}", teacher);
  return text + fmt::format(", vocab {}", spec.vocab);
}

std::string lines(const std::string& text, int width, int indent) {
  return fmt::format("{:{}}{}\n", "", indent, wrapped(text, width - indent, indent));
}

std::string header(const CampaignReport& report, const std::string& specification, int width) {
  std::string text = styled(Style::bold, specification) + "\n";
  const Declaration& declaration = report.declaration;
  std::string claims = fmt::format("Claims class {}{}", name(declaration.accuracy_class),
                                   declaration.deterministic ? ", deterministic" : "");
  claims += declaration.lacks.empty() ? "; lacks nothing."
                                      : fmt::format("; lacks {}.", fljsd::text(declaration.lacks));
  text += lines(claims, width, 2);
  std::string work = fmt::format(
      "{} on {} in {}: {:.0f} a second, the reference's answers included. Seed {}.",
      plural(report.cases, "evaluation", "evaluations"), plural(report.recipes, "recipe", "recipes"),
      duration(report.seconds), report.cases_per_second(), report.seed);
  if (report.resumed)
    work += fmt::format(" Goes on after {} on {}.", plural(report.earlier_cases, "evaluation", "evaluations"),
                        plural(report.earlier_recipes, "recipe", "recipes"));
  if (report.replayed > 0)
    work += fmt::format(" Replayed {} of the corpus.", plural(report.replayed, "entry", "entries"));
  if (report.interrupted) work += " Interrupted.";
  return text + lines(work, width, 2);
}

// Families, and the errors nearest to their budgets.
std::string family_table(const CampaignReport& report, int width) {
  Table table({"family", "recipes", "token\nloss", "loss", "input\ngrad", "weight\ngrad", "bias\ngrad"});
  for (const Family& family : families()) {
    const std::string name(family.name);
    const auto counts = report.coverage.family_property.find(name);
    if (counts == report.coverage.family_property.end()) continue;
    std::vector<Cell> row{name, std::to_string(of(counts->second, "answers"))};
    const auto records = report.records.find(name);
    for (const char* quantity : quantities) {
      const bool known = records != report.records.end() && records->second.count(quantity);
      row.emplace_back(known ? percent(records->second.at(quantity).ratio) : "-");
    }
    table.add(std::move(row));
  }
  return "\nThe error nearest to its budget, in each family (of answers that kept it)\n" +
         table.text(2, width);
}

std::string check_table(const CampaignReport& report, int width) {
  std::map<std::string, Index> counts;
  for (const auto& [family, by_check] : report.coverage.family_property)
    for (const auto& [name, count] : by_check) counts[name] += count;
  Table table({"check", "recipes", "says\nnothing", "nearest to\nits bound"});
  for (const CampaignCheck& check : campaign_checks()) {
    const Index count = of(counts, check.name), nothing = of(report.coverage.not_applicable, check.name);
    if (count + nothing == 0) continue;
    const auto worst = report.worst_property_ratio.find(check.name);
    table.add({check.name, std::to_string(count), std::to_string(nothing),
               worst == report.worst_property_ratio.end() ? "-" : percent(worst->second)});
  }
  return "\nWhat was checked\n" + table.text(2, width);
}

std::string feature_lines(const CampaignReport& report, int width) {
  std::map<std::string, Index> counts;
  for (const auto& [family, by_feature] : report.coverage.family_feature)
    for (const auto& [feature, count] : by_feature) counts[feature] += count;
  std::string text;
  for (const auto& [feature, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "Recipes that need a feature: " : ", ", feature, count);
  std::string result = "\n" + lines(text.empty() ? "No recipe was answered." : text + ".", width, 0);
  std::string skipped;
  for (const auto& [why, count] : report.coverage.skipped)
    skipped += fmt::format("{}{} {}", skipped.empty() ? "Skipped, because the candidate lacks it: " : ", ",
                           why, count);
  if (!skipped.empty()) result += lines(skipped + ".", width, 0);
  return result;
}

std::string verdict(const CampaignReport& report, int width) {
  std::set<std::string> checks, features;
  for (const auto& [family, by_check] : report.coverage.family_property)
    for (const auto& [name, count] : by_check) checks.insert(name);
  for (const auto& [family, by_feature] : report.coverage.family_feature)
    for (const auto& [name, count] : by_feature) features.insert(name);
  std::string covered = fmt::format(
      "{} of {} families, {} of {} checks, {} of {} features", report.coverage.family_property.size(),
      families().size(), checks.size(), campaign_checks().size(),
      features.size() - features.count("none of these"), all_features().size() - 1);
  std::string missing;
  for (const CampaignCheck& check : campaign_checks())
    if (!checks.count(check.name)) missing += (missing.empty() ? "" : ", ") + check.name;
  std::string text;
  if (report.clean()) {
    const bool nothing = report.coverage.family_property.empty();
    text = nothing ? styled(Style::warning, "Nothing was judged") + "."
                   : fmt::format("{}: nothing failed. Covered: {}.", styled(Style::good, "Clean"), covered);
  } else {
    text = fmt::format("{}: {}. Covered: {}.", styled(Style::bad, "Convicted"),
                       plural(static_cast<Index>(report.findings.size()), "finding", "findings"), covered);
  }
  if (!missing.empty() && !report.coverage.family_property.empty())
    text += fmt::format(" Not checked: {}.", missing);
  if (report.doubtful > 0)
    text += fmt::format(" {} dropped, because the reference's own error may explain them.",
                        plural(report.doubtful, "failure was", "failures were"));
  return "\n" + lines(text, width, 0);
}

}  // namespace

std::string reproducing_command(const Finding& finding, const std::string& specification) {
  if (!finding.search.empty())
    return fmt::format("fljsd fuzz --candidate {} {}", quoted(specification), finding.search);
  return fmt::format("fljsd fuzz --candidate {} --property {} --recipe {}", quoted(specification),
                     finding.kind.property, quoted(to_text(finding.recipe)));
}

std::string finding_text(const Finding& finding, std::size_t number, const std::string& specification,
                         int width) {
  std::string text = fmt::format("\n{}. {}\n", number, styled(Style::bold, finding.kind.text()));
  text += lines(finding.text + ".", width, 3);
  if (const auto& value = finding.value) {
    text += fmt::format("   got      {}\n   truth    {}{}\n", exact(value->got), exact(value->truth),
                        value->certified ? ", certified" : ", float64");
    if (std::isfinite(value->truth))
      text += fmt::format("   allowed  {}{}\n", exact(value->allowed),
                          value->what.find(',') == std::string::npos ? "" : ", for the row in the 2-norm");
  }
  text += fmt::format("   sizes    {}{}\n", sizes(finding.recipe), finding.minimal ? ", minimal" : "");
  text += lines(
      fmt::format("found at evaluation {}{}{}{}.", finding.cases_until,
                  finding.shrink_cases > 0
                      ? fmt::format(", shrunk in {} more from {}", finding.shrink_cases, sizes(finding.first))
                      : "",
                  finding.replayed ? ", in the corpus" : "",
                  finding.repeats > 0
                      ? fmt::format("; failed in this way {} more", plural(finding.repeats, "time", "times"))
                      : ""),
      width, 3);
  if (!finding.diagnostics.empty()) {
    text += "   The end of its stderr:\n";
    std::size_t begin = finding.diagnostics.size() > 600 ? finding.diagnostics.size() - 600 : 0;
    for (std::size_t end; begin < finding.diagnostics.size(); begin = end + 1) {
      end = std::min(finding.diagnostics.find('\n', begin), finding.diagnostics.size());
      text += fmt::format("     {}\n", finding.diagnostics.substr(begin, end - begin));
    }
  }
  if (finding.file) text += fmt::format("   file     {}\n", finding.file->string());
  if (finding.case_file) text += fmt::format("   case     {}\n", finding.case_file->string());
  // One line, however long: it is there to be pasted.
  return text + fmt::format("   again    {}\n", reproducing_command(finding, specification));
}

std::string campaign_text(const CampaignReport& report, const std::string& specification, int width) {
  width = std::min(width, 110);
  std::string text = header(report, specification, width);
  if (!report.coverage.family_property.empty()) {
    text += family_table(report, width);
    text += check_table(report, width);
    text += feature_lines(report, width);
  }
  std::size_t number = 0;
  for (const Finding& finding : report.findings)
    text += finding_text(finding, ++number, specification, width);
  for (const std::string& warning : report.warnings)
    text += "\n" + lines(styled(Style::warning, "Warning") + ": " + warning, width, 0);
  return text + verdict(report, width);
}

}  // namespace fljsd
