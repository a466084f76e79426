// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "verify/audit/render_html.h"
#include "verify/audit/render_html_errors.h"
#include "verify/audit/render_html_histogram.h"
#include "verify/report/number.h"

namespace fljsd::html {
namespace {

// Relative errors of 1 and more are no better than an answer of zeros.
Cell relative_cell(const std::optional<double>& error) {
  Cell cell = error_cell(error);
  cell.classes += error && !(*error < 1) ? " number bad" : " number";
  return cell;
}

Cell number_cell(const std::optional<double>& error) {
  Cell cell = error_cell(error);
  cell.classes += " number";
  return cell;
}

Markup error_table(const WorkloadReport& workload) {
  Table table("Errors of every candidate, and what an answer of zeros would score.",
              {{"candidate", ""},
               {"loss, relative", "number"},
               {"worst token's loss, nats", "number"},
               {"input gradient, relative L2", "number"},
               {"the median token's", "number"},
               {"weight gradient, relative L2", "number"},
               {"test ratio", "number"},
               {"class", ""}});
  const auto add = [&](const Markup& name, const Errors& errors, const Cell& ratio, const Cell& verdict,
                       bool zero) {
    const auto relative = [&](const std::optional<double>& error) {
      return zero ? number_cell(error) : relative_cell(error);
    };
    table.add({{name, "nowrap"},
               relative(errors.loss),
               number_cell(errors.token_loss),
               relative(errors.student_input_grad),
               relative(errors.median_token_grad),
               relative(errors.student_weight_grad),
               ratio,
               verdict});
  };
  add(element("em", {}, "an answer of zeros"), workload.zero, {}, {}, true);
  for (std::size_t i = 0; i < workload.candidates.size(); ++i) {
    const CandidateReport& candidate = workload.candidates[i];
    const VerdictRow* worst = candidate.verdict.worst();
    add(candidate_label(i, candidate), candidate.errors,
        number_cell(worst ? std::optional(worst->ratio) : std::nullopt), {verdict_label(candidate), "nowrap"},
        false);
  }
  return table.markup();
}

Markup error_figure(const WorkloadReport& workload) {
  std::vector<ErrorRow> rows;
  for (const Quantity& quantity : quantities()) {
    ErrorRow row = error_row(quantity.title, workload, quantity);
    if (hardest(row) < 0) continue;  // not part of this workload
    row.below = element("span", {}, quantity.unit);
    rows.push_back(std::move(row));
  }
  return element("figure", {},
                 {element("figcaption", {}, element("h3", {}, "Errors beside budgets")),
                  error_legend(workload.candidates), error_drawing(rows, "in each row's unit")});
}

// ‖error‖ / ‖truth‖ of every token's gradient whose truth is not 0.
std::vector<double> relative_token_errors(const MatrixError& gradient) {
  std::vector<double> relative;
  for (std::size_t t = 0; t < gradient.row_error.size(); ++t)
    if (gradient.row_truth[t] > 0) relative.push_back(gradient.row_error[t] / gradient.row_truth[t]);
  return relative;
}

Markup histograms(const WorkloadReport& workload) {
  std::vector<HistogramRow> losses, gradients;
  for (std::size_t i = 0; i < workload.candidates.size(); ++i) {
    const CandidateReport& candidate = workload.candidates[i];
    const Metrics& metrics = candidate.verdict.metrics;
    const HistogramRow row{candidate_label(i, candidate), candidate.verdict.accuracy_class, {}};
    if (metrics.token_loss) {
      losses.push_back(row);
      losses.back().errors = metrics.token_loss->error;
    }
    if (metrics.student_input_grad) {
      gradients.push_back(row);
      gradients.back().errors = relative_token_errors(*metrics.student_input_grad);
    }
  }
  Markup figures;
  if (!losses.empty())
    figures += element("figure", {},
                       {element("figcaption", {}, element("h3", {}, "Single losses: errors per token")),
                        histogram_drawing(losses, "absolute error, nats", std::nullopt)});
  if (!gradients.empty())
    figures +=
        element("figure", {},
                {element("figcaption", {}, element("h3", {}, "Gradients of single tokens: errors per token")),
                 histogram_drawing(gradients, "relative L2 error", 1.0),
                 note("Dashed: 1, what an answer of zeros scores.")});
  return element("div", {{"class", "figures"}}, figures);
}

// The digits that two decimals share stand out.
Markup shared_digits(const std::string& text, const std::string& other) {
  constexpr std::size_t most = 58;
  const std::size_t shared = static_cast<std::size_t>(
      std::mismatch(text.begin(), text.end(), other.begin(), other.end()).first - text.begin());
  const std::string shown = text.substr(0, most);
  return {element("b", {}, shown.substr(0, std::min(shared, shown.size()))),
          shown.substr(std::min(shared, shown.size()))};
}

}  // namespace

Markup certified_tokens(const WorkloadReport& workload) {
  if (workload.certified.empty()) return {};
  Table table("Losses in nats. Digits on which both ends of the enclosure agree are bold.",
              {{"token", ""},
               {"at least", ""},
               {"at most", ""},
               {"float64", ""},
               {"off by at most", "number"},
               {"bound", "number"},
               {"float64's bound", ""}});
  for (const CertifiedToken& token : workload.certified) {
    const Enclosure& e = token.enclosure;
    table.add(
        {{fmt::format("{}", token.token), ""},
         {shared_digits(e.lo_text, e.hi_text), "digits"},
         {shared_digits(e.hi_text, e.lo_text), "digits"},
         {std::isfinite(token.double_tier) ? fmt::format("{}", token.double_tier) : "NaN or ∞", "digits"},
         number_cell(token.error),
         number_cell(token.bound),
         {element("span", {{"class", token.kept() ? "verdict good" : "verdict bad"}},
                  token.kept() ? "✓ kept" : "✕ MISSED"),
          "nowrap"}});
  }
  return {element("h3", {}, "Certified losses"),
          paragraph("Intervals that enclose the true loss of a token, beside the float64 truth that "
                    "everything on this page is compared with."),
          table.markup("certified")};
}

Markup depth_section(const WorkloadReport& workload, std::size_t position) {
  const WorkloadInfo& info = workload.info;
  std::string facts = info.judged_tokens == info.tokens
                          ? fmt::format("All {} tokens", info.tokens)
                          : fmt::format("A sample of {} of {} tokens", info.judged_tokens, info.tokens);
  facts += fmt::format(
      ", taken as one batch; vocab {}, hidden {}; {} rows of the weight gradient; beta {}, temperature {}, "
      "{}, seed {}.",
      info.vocab,
      info.student_hidden == info.teacher_hidden
          ? fmt::format("{}", info.student_hidden)
          : fmt::format("{} (teacher {})", info.student_hidden, info.teacher_hidden),
      info.weight_rows, info.beta, info.temperature, info.dtype, info.seed);
  if (workload.true_loss)
    facts += std::isfinite(*workload.true_loss)
                 ? fmt::format(" The true loss is {} nats.", *workload.true_loss)
                 : " The true loss is NaN or infinite.";
  return section(
      fmt::format("depth-{}", position).c_str(), fmt::format("In depth: {} inputs", info.family),
      {paragraph(facts),
       paragraph(
           "Where a few tokens have almost all of the gradient, the input gradient's error is theirs; "
           "that of the median token, relative to its own gradient, stands beside it. Red: no better "
           "than an answer of zeros. A candidate can be that and keep its class all the same, where the "
           "class allows that much on these inputs."),
       error_table(workload), error_figure(workload), histograms(workload), waterfalls(workload),
       certified_tokens(workload)});
}

}  // namespace fljsd::html
