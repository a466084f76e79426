// SPDX-License-Identifier: Apache-2.0
#include "verify/tools/golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "verify/cases/recipe.h"
#include "verify/cases/safetensors.h"
#include "verify/judge/budget.h"
#include "verify/report/number.h"
#include "verify/report/output_file.h"
#include "verify/tools/sha256.h"

namespace fljsd {
namespace {

using Json = nlohmann::ordered_json;

// Digits of a bound. Neighbouring doubles differ in the 17th; three more leave the enclosure a thousandth of
// that wide. Bounds that settle no double have no digits in common, and need few.
constexpr std::size_t bound_digits = 20, unsettled_digits = 2;

std::string quoted(const std::string& text) {
  return Json(text).dump();
}

// One value on one line.
std::string value_text(const Enclosure& value) {
  if (!std::isfinite(value.lo) && (std::isnan(value.lo) || value.lo == value.hi))
    return json_number(value.lo).dump();
  const std::size_t digits = value.rounds_to ? bound_digits : unsettled_digits;
  return fmt::format(R"({{"lo": {}, "hi": {}, "nearest": {}}})",
                     quoted(rounded_decimal(value.lo_text, digits, false)),
                     quoted(rounded_decimal(value.hi_text, digits, true)),
                     value.rounds_to ? quoted(hex_float(*value.rounds_to)) : "null");
}

std::string list_text(std::span<const Enclosure> values, const std::string& indent) {
  if (values.empty()) return "[]";
  std::string text = "[";
  for (const Enclosure& value : values)
    text += (text.size() > 1 ? ",\n  " : "\n  ") + indent + value_text(value);
  return text + "\n" + indent + "]";
}

std::string matrix_text(const std::vector<Enclosure>& values, Index rows, Index cols,
                        const std::string& indent) {
  if (rows == 0) return "[]";
  std::string text = "[";
  for (Index r = 0; r < rows; ++r) {
    const auto row =
        std::span(values).subspan(static_cast<std::size_t>(r * cols), static_cast<std::size_t>(cols));
    text += (r > 0 ? ",\n  " : "\n  ") + indent + list_text(row, indent + "  ");
  }
  return text + "\n" + indent + "]";
}

std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Json manifest_entry(const GoldenCase& golden, const Case& c, const std::filesystem::path& folder) {
  const std::string name(golden.name), case_file = name + ".safetensors", answer_file = name + ".json";
  const Recipe recipe = parse_recipe(golden.recipe);
  const Problem problem = c.problem();
  Json dtypes{{"student_input", fljsd::name(c.student_input.dtype)},
              {"student_weight", fljsd::name(c.student_weight.dtype)},
              {"teacher_input", fljsd::name(c.teacher_input.dtype)},
              {"teacher_weight", fljsd::name(c.teacher_weight.dtype)}};
  if (c.student_bias) dtypes["student_bias"] = fljsd::name(c.student_bias->dtype);
  if (c.teacher_bias) dtypes["teacher_bias"] = fljsd::name(c.teacher_bias->dtype);
  Json entry{{"name", name},
             {"stresses", golden.stresses},
             {"family", find_family(recipe.spec.family).name},
             {"case", case_file},
             {"case_sha256", sha256(file_bytes(folder / case_file))},
             {"answer", answer_file},
             {"answer_sha256", sha256(file_bytes(folder / answer_file))},
             {"tokens", problem.tokens()},
             {"vocab", problem.vocab()},
             {"student_hidden", problem.student_input.cols},
             {"teacher_hidden", problem.teacher_input.cols},
             {"dtypes", std::move(dtypes)},
             {"labels", c.labels.has_value()},
             {"beta", json_number(c.options.beta)},
             {"temperature", json_number(c.options.temperature)},
             {"reduction", fljsd::name(c.options.reduction)},
             {"ignore_index", c.options.ignore_index},
             {"valid_vocab", valid_vocab(problem, c.options)},
             {"recipe", golden.recipe},
             {"command", fmt::format("make_golden FOLDER {}", name)}};
  return entry;
}

void make_files(const GoldenCase& golden, const Case& c, const std::filesystem::path& folder) {
  write_case(folder / (std::string(golden.name) + ".safetensors"), c);
  write_text(folder / (std::string(golden.name) + ".json"), golden_answer(golden, c));
}

}  // namespace

std::string rounded_decimal(const std::string& text, std::size_t digits, bool up) {
  const std::size_t exponent_at = std::min(text.find('e'), text.size());
  const bool negative = text[0] == '-';
  std::string significand, exponent_text = text.substr(std::min(exponent_at + 1, text.size()));
  for (std::size_t i = negative ? 1 : 0; i < exponent_at; ++i)
    if (text[i] != '.') significand += text[i];
  if (significand.size() <= digits) return text;

  int exponent = exponent_text.empty() ? 0 : std::stoi(exponent_text);
  const bool exact = significand.find_first_not_of('0', digits) == std::string::npos;
  significand.resize(digits);
  if (!exact && up != negative) {  // away from zero: one more in the last digit
    std::size_t i = digits;
    while (i > 0 && significand[i - 1] == '9') significand[--i] = '0';
    if (i > 0) {
      ++significand[i - 1];
    } else {
      significand.insert(0, "1");
      ++exponent;
    }
  }
  significand.erase(std::max<std::size_t>(1, significand.find_last_not_of('0') + 1));
  if (significand.size() > 1) significand.insert(1, ".");
  return (negative ? "-" : "") + significand + (exponent == 0 ? "" : "e" + std::to_string(exponent));
}

std::string golden_answer(const GoldenCase& golden, const Case& c) {
  const Problem problem = c.problem();
  const CertifiedResult truth = certify(problem, c.options, Wanted::all());
  const Result near = linear_jsd<double>(problem, c.options, Wanted::all());
  const auto not_judged = make_budgets(c, {near, false}, Wanted::all()).gradients_not_judged;

  std::vector<std::pair<std::string, std::string>> fields{
      {"schema", "1"},
      {"case", quoted(std::string(golden.name) + ".safetensors")},
      {"counted", std::to_string(truth.counted)},
      {"loss", truth.loss ? value_text(*truth.loss) : "null"},
      {"token_loss", list_text(truth.token_loss, "  ")},
  };
  if (not_judged) {
    fields.emplace_back("gradients_not_judged", quoted(*not_judged));
  } else {
    const Index hidden = problem.student_input.cols;
    fields.emplace_back("student_input_grad",
                        matrix_text(truth.student_input_grad, problem.tokens(), hidden, "  "));
    fields.emplace_back("student_weight_grad",
                        matrix_text(truth.student_weight_grad, problem.vocab(), hidden, "  "));
    fields.emplace_back("student_bias_grad", list_text(truth.student_bias_grad, "  "));
  }
  std::string text = "{";
  for (const auto& [key, value] : fields)
    text += fmt::format("{}\n  {}: {}", text.size() > 1 ? "," : "", quoted(key), value);
  return text + "\n}\n";
}

void make_golden(const std::filesystem::path& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto has_name = [&](const GoldenCase& golden) { return golden.name == name; };
    if (std::none_of(golden_cases().begin(), golden_cases().end(), has_name))
      throw std::invalid_argument(fmt::format("there is no golden case '{}'.", name));
  }
  Json cases = Json::array();
  for (const GoldenCase& golden : golden_cases()) {
    if (!names.empty() && std::find(names.begin(), names.end(), golden.name) == names.end()) continue;
    const Case c = make_case(parse_recipe(golden.recipe));
    make_files(golden, c, folder);
    cases.push_back(manifest_entry(golden, c, folder));
  }
  if (!names.empty()) return;
  const Json manifest{{"schema", 1},
                      {"definitions", "docs/math.md"},
                      {"format", "data/golden/README.md"},
                      {"command", "make_golden FOLDER"},
                      {"cases", std::move(cases)}};
  write_text(folder / "manifest.json", manifest.dump(1) + "\n");
}

}  // namespace fljsd
