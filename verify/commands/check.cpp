// SPDX-License-Identifier: Apache-2.0
// fljsd check: judges a result that any program computed for a case.
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "reference/rounding.h"
#include "verify/cases/result.h"
#include "verify/cases/safetensors.h"
#include "verify/commands/commands.h"
#include "verify/judge/verdict.h"
#include "verify/report/number.h"
#include "verify/report/progress.h"
#include "verify/report/table.h"

namespace fljsd {
namespace {

using Json = nlohmann::ordered_json;

struct CheckOptions {
  std::string case_path, result_path, accuracy_class = "fp32-logits";
  bool json = false;
};

AccuracyClass class_from(const std::string& text) {
  for (const ClassContract& contract : contracts())
    if (text == name(contract.accuracy_class)) return contract.accuracy_class;
  throw UsageError(fmt::format("there is no accuracy class '{}'.", text));
}

std::vector<double> decoded(const std::optional<Tensor>& tensor) {
  if (!tensor) return {};
  std::vector<double> values(static_cast<std::size_t>(tensor->elements()));
  load_run(tensor->dtype, tensor->data.get(), 0, tensor->elements(), values.data());
  return values;
}

RowMajorMatrix<double> decoded_matrix(const std::optional<Tensor>& tensor) {
  if (!tensor) return {};
  RowMajorMatrix<double> matrix(tensor->shape[0], tensor->shape[1]);
  load_run(tensor->dtype, tensor->data.get(), 0, tensor->elements(), matrix.data());
  return matrix;
}

Result decoded(const CaseResult& file) {
  Result result;
  result.loss = file.loss;
  result.token_loss = decoded(file.token_loss);
  result.student_input_grad = decoded_matrix(file.student_input_grad);
  result.student_weight_grad = decoded_matrix(file.student_weight_grad);
  result.student_bias_grad = decoded(file.student_bias_grad);
  return result;
}

// What rounding the logits to bf16, and nothing else, would score.
struct Bf16Score {
  Verdict verdict;

  const VerdictRow* like(const VerdictRow& row) const {
    for (const VerdictRow& candidate : verdict.rows)
      if (candidate.quantity == row.quantity && candidate.measure == row.measure) return &candidate;
    return nullptr;
  }
};

Json json_report(const Verdict& verdict, const Bf16Score& bf16) {
  Json json{{"schema", 1}};
  json.update(to_json(verdict));
  json["bf16_logits_error"] = Json::array();
  for (const VerdictRow& row : verdict.rows) {
    const VerdictRow* other = bf16.like(row);
    json["bf16_logits_error"].push_back({{"quantity", row.quantity},
                                         {"measure", row.measure},
                                         {"error", other ? json_number(other->error) : Json()}});
  }
  return json;
}

Cell outcome(const VerdictRow& row) {
  if (!row.judged) return {"not judged", Style::dim};
  return row.pass ? Cell("ok", Style::good) : Cell("BROKEN", Style::bad);
}

void print_report(const CheckOptions& options, const Verdict& verdict, const Bf16Score& bf16) {
  fmt::print("{} for {}, class {}\n\n", options.result_path, options.case_path, name(verdict.accuracy_class));
  Table table({"", "error", "budget", "ratio", "", "zeros\nwould score", "bf16 logits\nwould score"}, {4});
  std::string quantity;
  for (const VerdictRow& row : verdict.rows) {
    if (row.quantity != quantity) table.add({{row.quantity, Style::bold}, "", "", "", "", "", ""});
    quantity = row.quantity;
    const VerdictRow* other = bf16.like(row);
    table.add({"  " + row.measure,
               short_number(row.error),
               short_number(row.budget),
               {short_number(row.ratio), row.pass ? Style::plain : Style::bad},
               outcome(row),
               short_number(row.zero_error),
               other ? short_number(other->error) : "-"});
  }
  fmt::print("{}\n", table.text());
  for (const VerdictRow& row : verdict.rows) {
    if (row.note.empty()) continue;
    const std::string note = fmt::format("{}, {}: {}", row.quantity, row.measure, row.note);
    fmt::print("  {}\n", wrapped(note, terminal_width() - 4, 4));
  }

  const VerdictRow* worst = verdict.worst();
  if (!worst) return;  // which run() says
  if (verdict.pass()) {
    fmt::print("{}: every error is within the budget of {}; the closest is {} ({}) at {} of it.\n",
               styled(Style::good, "Kept"), name(verdict.accuracy_class), worst->quantity, worst->measure,
               percent(worst->ratio));
  } else {
    std::string where;
    if (worst->worst >= 0) where = fmt::format(", worst at index {}", worst->worst);
    fmt::print("{}: {} ({}) is off by {}, {} times what {} allows{}.\n", styled(Style::bad, "Broken"),
               worst->quantity, worst->measure, short_number(worst->error), short_number(worst->ratio),
               name(verdict.accuracy_class), where);
  }
}

int run(const CheckOptions& options) {
  const AccuracyClass accuracy_class = class_from(options.accuracy_class);
  const Case c = read_case(options.case_path);
  const CaseResult file = read_result(options.result_path);
  check_result_shapes(c, file, options.result_path);
  const Result result = decoded(file);
  if (result.loss && c.options.reduction == Reduction::none)
    throw FileError(
        fmt::format("{}: there is a loss, but the reduction of the case is 'none', which has "
                    "losses of tokens only.",
                    options.result_path));
  Wanted wanted;
  wanted.student_input_grad = file.student_input_grad.has_value();
  wanted.student_weight_grad = file.student_weight_grad.has_value();
  wanted.student_bias_grad = file.student_bias_grad.has_value();
  if (!result.loss && !file.token_loss && !wanted.any_grad())
    throw FileError(fmt::format("{} holds no tensor that could be judged.", options.result_path));

  Progress progress;
  const Problem problem = c.problem();
  progress.step("computing the truth");
  const Truth truth{linear_jsd<double>(problem, c.options, wanted)};
  progress.step("computing the budgets");
  const Budgets budgets = make_budgets(c, truth, wanted);
  const Verdict verdict = judge(budgets, truth, result, accuracy_class, file.loss_dtype);
  progress.step("computing what bf16 logits would score");
  Pipeline bf16_logits;
  bf16_logits.logits = bf16_logits.scaled_logits = Storage::bf16;
  const Bf16Score bf16{judge(budgets, truth, run_pipeline(problem, c.options, wanted, bf16_logits),
                             AccuracyClass::bf16_logits)};
  progress.pause();

  if (options.json) {
    fmt::print("{}\n", json_report(verdict, bf16).dump(2));
  } else {
    print_report(options, verdict, bf16);
  }
  if (!verdict.worst())
    throw FileError(fmt::format("{}: nothing in it could be judged for this case, so this is no verdict.",
                                options.result_path));
  return verdict.pass() ? exit_status::fine : exit_status::finding;
}

}  // namespace

Action setup_check(CLI::App& app) {
  const auto options = std::make_shared<CheckOptions>();
  std::vector<std::string> classes;
  for (const ClassContract& contract : contracts()) classes.emplace_back(name(contract.accuracy_class));
  app.add_option("CASE", options->case_path, "The case, a safetensors file (see fljsd gen)")->required();
  app.add_option(
         "RESULT", options->result_path,
         "The answer, a safetensors file with any of: loss [1], token_loss [tokens], student_input_grad, "
         "student_weight_grad, student_bias_grad; any floating-point format")
      ->required();
  app.add_option(
         "--class", options->accuracy_class,
         "What the program promises: float64, fp32-logits (default) or bf16-logits. An error above the "
         "budget of the class is a finding: exit status 1")
      ->check(one_of("accuracy class", classes));
  app.add_flag("--json", options->json, "Print JSON");
  return [options](const std::string&) { return run(*options); };
}

}  // namespace fljsd
