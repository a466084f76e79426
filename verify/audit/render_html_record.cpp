// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "verify/audit/render_html.h"
#include "verify/judge/budget.h"
#include "verify/report/number.h"

namespace fljsd::html {
namespace {

// The format's word is the cell's text; its colour only repeats it.
Cell format_cell(const std::string& format) {
  if (format.empty()) return {"–", "dim"};
  const char* colour = format == "float64" ? "keeps-f64" : format == "fp32" ? "keeps-fp32" : "keeps-16";
  return {format, colour};
}

Markup definition(const char* term, const Markup& meaning) {
  return element("dt", {}, term) + element("dd", {}, meaning);
}

}  // namespace

Markup rounding_section(const AuditReport& report) {
  if (report.candidates.empty()) return {};
  std::vector<Cell> headings = {{"candidate", ""}};
  for (const RoundingPlace& place : report.candidates.front().places) headings.push_back({place.place, ""});
  for (const char* more : {"formula", "weight gradient's sum", "0 · (−∞)"}) headings.push_back({more, ""});
  Table table(
      "The format in which each candidate keeps its values, from left to right along the computation.",
      headings);
  for (std::size_t i = 0; i < report.candidates.size(); ++i) {
    const CandidateInfo& info = report.candidates[i];
    std::vector<Cell> row = {
        {element("span", {{"class", "candidate"}}, {marker_key(i, info.accuracy_class), " ", info.name}),
         "nowrap"}};
    for (const RoundingPlace& place : info.places) row.push_back(format_cell(place.format));
    if (!info.is_model) {
      row.resize(row.size() + 3, {"", ""});
      table.add(std::move(row));
      continue;
    }
    row.push_back({info.formula, ""});
    row.push_back({info.chunked_weight_grad ? "in chunks" : "at once", ""});
    row.push_back({info.guarded ? "0" : "NaN", info.guarded ? "" : "bad"});
    table.add(std::move(row));
  }
  return section(
      "rounding", "Where does each pipeline round?",
      {table.markup("formats"),
       note("A weight gradient summed in chunks of tokens is rounded to its format after each "
            "chunk. 0 · (−∞): "
            "what the candidate makes of the term of an entry whose probability is 0. Nothing is known of a "
            "program but its answers.")});
}

Markup terms_section() {
  Table classes("Accuracy classes and what they promise.",
                {{"class", ""}, {"promise", ""}, {"sums are held to", ""}});
  for (const ClassContract& contract : contracts())
    classes.add({{element("b", {{"class", css(contract.accuracy_class)}}, name(contract.accuracy_class)), ""},
                 {contract.promise, "prose"},
                 {contract.statistical ? "a statistical bound" : "the worst case", "nowrap"}});
  const Markup terms = element(
      "dl", {},
      {definition("Budget",
                  fmt::format("What a class may be off by on the input at hand: an a-priori bound of the "
                              "arithmetic that the class allows, plus the bound of the truth's own error. A "
                              "correct implementation breaks a statistical budget with probability below {} "
                              "in a case.",
                              short_number(budget_failure_probability, 2))),
       definition("Test ratio", "Error over budget. At most 1: the promise is kept."),
       definition("Relative L2",
                  "The Euclidean norm of the gradient's error over that of the true gradient. Where the true "
                  "gradient is 0 nothing is relative to it, and the absolute error is shown."),
       definition("An answer of zeros",
                  "What the result 0 would score. An error near it says nothing in favour of a candidate; a "
                  "tolerance above it tests nothing."),
       definition("NaN or ∞",
                  "A result that is NaN or infinite where the truth is finite. It breaks every class."),
       definition("Enclosure",
                  "Two numbers between which the true value lies, proven by interval arithmetic "
                  "with outward rounding on exact dot products."),
       definition("Nat", "The unit of the divergence: natural logarithms.")});
  return section("terms", "What do the words mean?", classes.markup() + terms);
}

Markup record_section(const RunRecord& run) {
  const auto code = [](const std::string& text) {
    return element("code", {}, text.empty() ? std::string("unknown") : text);
  };
  return section(
      "record", "Run record",
      element("dl", {{"class", "record"}},
              {definition("Command", code(run.command)), definition("Date", code(run.date)),
               definition("Seed", code(fmt::format("{}", run.seed))),
               definition("Version", code(fmt::format("fljsd {}, commit {}", run.version,
                                                      run.commit.empty() ? "unknown" : run.commit))),
               definition("Built by", code(fmt::format("{}, {}", run.compiler, run.build_type))),
               definition("Libraries", code(run.libraries)), definition("System", code(run.system)),
               definition("Processor", code(fmt::format("{}, {} threads", run.cpu, run.threads))),
               definition("Took", code(fmt::format("{}, {} of memory at most", duration(run.seconds),
                                                   byte_count(static_cast<double>(run.peak_memory)))))}));
}

}  // namespace fljsd::html
