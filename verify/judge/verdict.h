// SPDX-License-Identifier: Apache-2.0
// Whether a result keeps what its accuracy class promises: every metric beside its budget.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "verify/judge/budget.h"
#include "verify/judge/metrics.h"

namespace fljsd {

// One quantity in one measure.
struct VerdictRow {
  std::string quantity;  // "loss", "token_loss", "student_input_grad", ...
  std::string measure;   // "absolute", "worst token", "worst row, L2", "relative L2", "worst element"
  double error = 0;
  double budget = 0;
  double ratio = 0;        // error / budget, the test ratio; for a worst position, the largest one. 0 for 0/0
  Index worst = -1;        // token, row or element with the largest ratio; -1 if there is none
  double worst_case = 0;   // what gamma_n in place of statistics would allow
  double zero_error = 0;   // what an answer of all zeros would score in this measure
  double zero_ratio = 0;   // and the largest test ratio it would have
  double bf16_budget = 0;  // what a pipeline with bf16 logits may score: the a-priori line of that class; NaN
                           // if the budgets are of another class only
  bool judged = true;      // false: see `note`
  bool pass = true;        // always true for a row that is not judged
  bool loose = false;      // ratio below 1e-3: far better than the class, or the budget is too generous
  std::string note;        // why it is not judged, or what a reader should know
};

struct Verdict {
  AccuracyClass accuracy_class = AccuracyClass::fp32_logits;
  std::vector<VerdictRow> rows;
  Metrics metrics;  // everything measured, per-token errors included
  // Error / budget of each token's loss, for histograms; empty if there are no losses per token.
  std::vector<double> token_ratio;
  double lambda = 0;

  bool pass() const;  // every row passes
  // The row with the largest ratio among those judged; null if none is.
  const VerdictRow* worst() const;
};

// Judges everything that both the truth and the result have; what the result lacks is not judged. Throws
// std::invalid_argument for a part of the wrong shape. `loss_format` is what the result's loss was stored in.
Verdict judge(const Budgets& budgets, const Truth& truth, const Result& result, AccuracyClass accuracy_class,
              DType loss_format = DType::f64);

// The same for a single result: makes the budgets first.
Verdict judge(const Case& c, const Truth& truth, const Wanted& wanted, const Result& result,
              AccuracyClass accuracy_class, DType loss_format = DType::f64);

nlohmann::ordered_json to_json(const Verdict& verdict);

// A plain table, one line a row, then one line with the outcome.
std::string format(const Verdict& verdict);

}  // namespace fljsd
