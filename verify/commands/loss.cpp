// SPDX-License-Identifier: Apache-2.0
// fljsd loss: the true losses and gradients of a case.
#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "reference/enclosure.h"
#include "reference/largest.h"
#include "verify/cases/result.h"
#include "verify/cases/safetensors.h"
#include "verify/commands/commands.h"
#include "verify/report/number.h"
#include "verify/report/output_file.h"
#include "verify/report/progress.h"
#include "verify/report/table.h"

namespace fljsd {
namespace {

using Json = nlohmann::ordered_json;

struct LossOptions {
  std::string case_path, tier = "double", out;
  bool grad = false, json = false;
};

// One number to print: a double of the double tier, or an enclosure of the certified one.
struct Value {
  double nearest = 0;  // to the true value as far as it is known
  const Enclosure* enclosure = nullptr;
};

Value value_of(double x) {
  return {x, nullptr};
}

Value value_of(const Enclosure& x) {
  return {x.rounds_to.value_or(x.lo == x.hi ? x.lo : x.lo + (x.hi - x.lo) / 2), &x};
}

Json to_json(const Value& value) {
  Json json{{"value", json_number(value.nearest)}, {"hex", hex_float(value.nearest)}};
  if (value.enclosure) {
    json["lo"] = value.enclosure->lo_text;
    json["hi"] = value.enclosure->hi_text;
    json["rounds_to"] = value.enclosure->rounds_to ? json_number(*value.enclosure->rounds_to) : Json();
  }
  return json;
}

// What both tiers have in common once computed.
struct Answer {
  std::optional<Value> loss;
  Index counted = 0;
  std::vector<Value> token_loss;
  CaseResult file;  // float64 tensors
};

template <class Number>
Tensor float64_tensor(std::vector<Index> shape, const Number* numbers, Index count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  std::transform(numbers, numbers + count, values.begin(),
                 [](const Number& x) { return value_of(x).nearest; });
  return make_tensor(DType::f64, std::move(shape), values);
}

template <class Result>
Answer answer_from(const Problem& problem, const Result& result, bool grad) {
  Answer answer;
  if (result.loss) answer.loss = value_of(*result.loss);
  answer.counted = result.counted;
  for (const auto& loss : result.token_loss) answer.token_loss.push_back(value_of(loss));
  if (answer.loss) answer.file.loss = answer.loss->nearest;
  answer.file.token_loss = float64_tensor({problem.tokens()}, result.token_loss.data(), problem.tokens());
  if (grad) {
    const Index hidden = problem.student_input.cols, vocab = problem.vocab();
    const auto tensor = [](std::vector<Index> shape, const auto& gradient) {
      return float64_tensor(std::move(shape), gradient.data(), static_cast<Index>(gradient.size()));
    };
    answer.file.student_input_grad = tensor({problem.tokens(), hidden}, result.student_input_grad);
    answer.file.student_weight_grad = tensor({vocab, hidden}, result.student_weight_grad);
    answer.file.student_bias_grad = tensor({vocab}, result.student_bias_grad);
  }
  return answer;
}

// The gradients with their names.
std::vector<std::pair<const char*, const Tensor*>> gradients(const CaseResult& result) {
  std::vector<std::pair<const char*, const Tensor*>> present;
  if (result.student_input_grad) present.emplace_back("student_input_grad", &*result.student_input_grad);
  if (result.student_weight_grad) present.emplace_back("student_weight_grad", &*result.student_weight_grad);
  if (result.student_bias_grad) present.emplace_back("student_bias_grad", &*result.student_bias_grad);
  return present;
}

double euclidean_norm(const Tensor& tensor) {
  double largest = 0;
  for (Index i = 0; i < tensor.elements(); ++i)
    largest = larger_or_nan(largest, std::abs(load(tensor.dtype, tensor.data.get(), i)));
  if (largest == 0 || !std::isfinite(largest)) return largest;
  double sum = 0;  // of squares, scaled so that none overflows
  for (Index i = 0; i < tensor.elements(); ++i) {
    const double scaled = load(tensor.dtype, tensor.data.get(), i) / largest;
    sum += scaled * scaled;
  }
  return largest * std::sqrt(sum);
}

Json json_answer(const Answer& answer, const LossOptions& options, Index tokens) {
  Json json{{"schema", 1}, {"loss", answer.loss ? to_json(*answer.loss) : Json()}};
  json["tokens"] = tokens;
  json["counted"] = answer.counted;
  json["tier"] = options.tier;
  json["token_loss"] = Json::array();
  for (const Value& loss : answer.token_loss)
    json["token_loss"].push_back(loss.enclosure ? to_json(loss) : json_number(loss.nearest));
  for (const auto& [name, tensor] : gradients(answer.file))
    json["norms"][name] = json_number(euclidean_norm(*tensor));
  return json;
}

void print_value(const Value& value) {
  fmt::print("{}   {}\n", styled(Style::bold, fmt::format("{}", value.nearest)), hex_float(value.nearest));
  if (!value.enclosure) return;
  fmt::print("  at least  {}\n  at most   {}\n  {}\n", value.enclosure->lo_text, value.enclosure->hi_text,
             value.enclosure->rounds_to
                 ? "The true value rounds to the number above."
                 : "Inconclusive: the enclosure does not settle to which double the true value rounds.");
}

void print_answer(const Answer& answer, const Case& c, const Problem& problem) {
  if (answer.loss) {
    fmt::print("loss    ");
    print_value(*answer.loss);
  } else {
    fmt::print("loss    none: the reduction is 'none', so there are only losses of tokens\n");
  }
  fmt::print("{} of {} tokens counted, vocab {}, hidden {} (teacher {}), beta {}, temperature {}, {}\n",
             answer.counted, problem.tokens(), problem.vocab(), problem.student_input.cols,
             problem.teacher_input.cols, c.options.beta, c.options.temperature, name(c.options.reduction));

  constexpr std::size_t most_shown = 8;
  const std::size_t shown = std::min(most_shown, answer.token_loss.size());
  if (shown > 0) {
    Table table({"token", "loss", "hex"}, {1, 2});
    for (std::size_t t = 0; t < shown; ++t)
      table.add({fmt::format("{}", t), fmt::format("{}", answer.token_loss[t].nearest),
                 hex_float(answer.token_loss[t].nearest)});
    fmt::print("\n{}", table.text());
    if (shown < answer.token_loss.size())
      fmt::print("  and {} more: --json shows all\n", answer.token_loss.size() - shown);
  }
  if (!gradients(answer.file).empty()) {
    Table table({"gradient", "Euclidean norm"});
    for (const auto& [name, tensor] : gradients(answer.file))
      table.add({name, fmt::format("{:.17g}", euclidean_norm(*tensor))});
    fmt::print("\n{}", table.text());
  }
}

int run(const LossOptions& options) {
  require_outputs({{"--out", options.out}}, {{"CASE", options.case_path}});
  const Case c = read_case(options.case_path);
  const Problem problem = c.problem();
  const Wanted wanted = options.grad ? Wanted::all() : Wanted{};

  Progress progress;
  progress.step(fmt::format("{}: {} tier", options.case_path, options.tier));
  CertifiedResult certified;  // the answer's enclosures point into it
  Answer answer;
  if (options.tier == "certified") {
    certified = certify(problem, c.options, wanted);
    answer = answer_from(problem, certified, options.grad);
  } else {
    answer = answer_from(problem, linear_jsd<double>(problem, c.options, wanted), options.grad);
  }
  progress.pause();

  if (!options.out.empty()) write_result(options.out, answer.file);
  if (options.json) {
    fmt::print("{}\n", json_answer(answer, options, problem.tokens()).dump(2));
  } else {
    print_answer(answer, c, problem);
  }
  return exit_status::fine;
}

}  // namespace

Action setup_loss(CLI::App& app) {
  const auto options = std::make_shared<LossOptions>();
  app.add_option("CASE", options->case_path, "The case, a safetensors file (see fljsd gen)")->required();
  app.add_option(
         "--tier", options->tier,
         "double: float64 arithmetic (the default). certified: intervals that enclose the true value, "
         "narrowed until they round to one double; takes far longer, with --grad for small cases only")
      ->check(one_of("tier", {"double", "certified"}));
  app.add_flag("--grad", options->grad,
               "Also the gradients of student input, student weight and student bias");
  app.add_option("--out", options->out,
                 "Write loss, token_loss and the gradients asked for to this safetensors file, as F64. The "
                 "certified tier writes the double that the true value rounds to, or the middle of an "
                 "enclosure that is inconclusive");
  app.add_flag("--json", options->json, "Print JSON; numbers that are not finite are strings");
  return [options](const std::string&) { return run(*options); };
}

}  // namespace fljsd
