// SPDX-License-Identifier: Apache-2.0
// Observed errors beside their bounds:
//
//   error_bound_tables csv      > data/measured/cpu/error_bounds.csv
//   error_bound_tables markdown   the table of docs/error_analysis.md, an extract of the same
//
// For every input family whose results are finite and every rounding model: the observed error, the
// worst-case and the statistical bound of the model's class, and what an answer of all zeros would score.
// Largest ratios of three seeds. Deterministic but for the last bits of the C library's functions; takes a
// few seconds.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "reference/rounding.h"
#include "verify/cases/families.h"
#include "verify/judge/verdict.h"

namespace fljsd {
namespace {

constexpr Index tokens = 16, hidden = 64, vocab = 512;

// One quantity of one model on one family: the largest over the seeds.
struct Line {
  std::string quantity, measure;
  double error = 0;               // observed, where the ratio to the statistical bound is largest
  double worst = 0, allowed = 0;  // the two bounds there
  double zero = 0;                // largest ratio of the zero answer to the statistical bound
  double ratio() const { return allowed > 0 ? error / allowed : 0; }
};

void add(std::vector<Line>& lines, const Verdict& verdict) {
  for (const VerdictRow& row : verdict.rows) {
    if (!row.judged || !std::isfinite(row.error)) continue;
    auto line = std::find_if(lines.begin(), lines.end(), [&](const Line& l) {
      return l.quantity == row.quantity && l.measure == row.measure;
    });
    if (line == lines.end())
      line = lines.insert(lines.end(), {row.quantity, row.measure, row.error, row.worst_case, row.budget, 0});
    if (row.budget > 0 && row.error / row.budget > line->ratio()) {
      line->error = row.error;
      line->worst = row.worst_case;
      line->allowed = row.budget;
    }
    line->zero = std::max(line->zero, row.zero_ratio);
  }
}

// What the three seeds show of one model on one family; nothing where a result is not finite.
std::vector<Line> observe(const Family& family, const RoundingModel& model) {
  std::vector<Line> lines;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    CaseSpec spec;
    spec.family = family.number;
    spec.tokens = tokens;
    spec.student_hidden = hidden;
    spec.vocab = vocab;
    spec.seed = seed;
    const Case c = make_case(spec);
    const Truth truth{linear_jsd<double>(c.problem(), c.options, Wanted::all()), false};
    const Result result = run_pipeline(c.problem(), c.options, Wanted::all(), model.pipeline);
    if (!std::isfinite(*result.loss) || !result.student_weight_grad.allFinite()) return {};
    add(lines, judge(c, truth, Wanted::all(), result, model.accuracy_class));
  }
  return lines;
}

void csv(const Family& family) {
  for (const RoundingModel& model : rounding_models()) {
    const std::vector<Line> lines = observe(family, model);
    if (lines.empty())
      std::printf("%s,%s,%s,all,\"not finite or without a bound\",,,,,,\n", family.name.data(), model.name,
                  name(model.accuracy_class));
    for (const Line& l : lines)
      std::printf("%s,%s,%s,%s,\"%s\",%.2e,%.2e,%.2e,%.1e,%.1e,%.1e\n", family.name.data(), model.name,
                  name(model.accuracy_class), l.quantity.c_str(), l.measure.c_str(), l.error, l.worst,
                  l.allowed, l.worst > 0 ? l.error / l.worst : 0, l.ratio(), l.zero);
  }
}

void markdown(const Family& family) {
  std::printf("| %s |", family.name.data());
  for (const char* model : {"fp32-logits", "liger"}) {
    const std::vector<Line> lines = observe(family, *find_rounding_model(model));
    const auto find = [&](const char* quantity, const char* measure) -> const Line* {
      for (const Line& l : lines)
        if (l.quantity == quantity && l.measure == measure) return &l;
      return nullptr;
    };
    const Line *loss = find("token_loss", "worst token"), *grad = find("student_input_grad", "relative L2");
    for (const Line* l : {loss, grad}) {
      if (l && l->worst > 0)
        std::printf(" %.1e / %.1e |", l->error / l->worst, l->ratio());
      else
        std::printf(" - |");
    }
    if (grad)
      std::printf(" %.1e |", grad->zero);
    else
      std::printf(" - |");
  }
  std::puts("");
}

}  // namespace
}  // namespace fljsd

int main(int argc, char** argv) {
  const std::string mode = argc == 2 ? argv[1] : "";
  if (mode != "csv" && mode != "markdown") {
    std::fputs("usage: error_bound_tables csv|markdown\n", stderr);
    return 2;
  }
  if (mode == "csv") {
    std::puts("# command: error_bound_tables csv");
    std::printf(
        "# bf16 tensors, tokens %d, hidden %d, vocab %d, beta 0.5, temperature 1, batchmean; seeds 1 to 3\n",
        static_cast<int>(fljsd::tokens), static_cast<int>(fljsd::hidden), static_cast<int>(fljsd::vocab));
    std::puts("# worst_case: gamma_n throughout; statistical: what the class is held to (float64: the same)");
    std::puts("# zero_over_statistical: what an answer of all zeros would score; above 1 it is convicted");
    std::puts(
        "family,model,class,quantity,measure,observed,worst_case,statistical,observed_over_worst_case,"
        "observed_over_statistical,zero_over_statistical");
  } else {
    std::puts("| family | fp32: loss | fp32: dX | fp32: dX = 0 | bf16: loss | bf16: dX | bf16: dX = 0 |");
    std::puts("|---|---|---|---|---|---|---|");
  }
  for (const fljsd::Family& family : fljsd::families()) {
    if (family.finiteness == fljsd::Finiteness::no_promise) continue;
    mode == "csv" ? fljsd::csv(family) : fljsd::markdown(family);
  }
  return 0;
}
