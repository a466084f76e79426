// SPDX-License-Identifier: Apache-2.0
// The table of docs/error_analysis.md, as CSV on stdout:
//
//   error_bound_tables > data/measured/cpu/error_bounds.csv
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

void print(const Family& family) {
  for (const RoundingModel& model : rounding_models()) {
    std::vector<Line> lines;
    bool finite = true;
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
      finite = finite && std::isfinite(*result.loss) && result.student_weight_grad.allFinite();
      if (finite) add(lines, judge(c, truth, Wanted::all(), result, model.accuracy_class));
    }
    if (!finite) {
      std::printf("%s,%s,%s,all,not finite,,,,,,\n", family.name.data(), model.name,
                  name(model.accuracy_class));
      continue;
    }
    for (const Line& l : lines)
      std::printf("%s,%s,%s,%s,\"%s\",%.2e,%.2e,%.2e,%.1e,%.1e,%.1e\n", family.name.data(), model.name,
                  name(model.accuracy_class), l.quantity.c_str(), l.measure.c_str(), l.error, l.worst,
                  l.allowed, l.worst > 0 ? l.error / l.worst : 0, l.ratio(), l.zero);
  }
}

}  // namespace
}  // namespace fljsd

int main(int argc, char**) {
  if (argc != 1) {
    std::fputs("usage: error_bound_tables\n", stderr);
    return 2;
  }
  std::puts("# command: error_bound_tables");
  std::printf(
      "# bf16 tensors, tokens %d, hidden %d, vocab %d, beta 0.5, temperature 1, batchmean; seeds 1 to 3\n",
      static_cast<int>(fljsd::tokens), static_cast<int>(fljsd::hidden), static_cast<int>(fljsd::vocab));
  std::puts("# worst_case: gamma_n throughout; statistical: what the class is held to (float64: the same)");
  std::puts("# zero_over_statistical: what an answer of all zeros would score; above 1 it is convicted");
  std::puts(
      "family,model,class,quantity,measure,observed,worst_case,statistical,observed_over_worst_case,"
      "observed_over_statistical,zero_over_statistical");
  for (const fljsd::Family& family : fljsd::families())
    if (family.finiteness != fljsd::Finiteness::no_promise) fljsd::print(family);
  return 0;
}
