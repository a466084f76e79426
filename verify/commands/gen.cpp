// SPDX-License-Identifier: Apache-2.0
// fljsd gen: a case of one of the input families, as a file.
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "verify/cases/families.h"
#include "verify/cases/recipe.h"
#include "verify/cases/safetensors.h"
#include "verify/commands/commands.h"
#include "verify/report/number.h"
#include "verify/report/output_file.h"
#include "verify/report/progress.h"
#include "verify/report/suggest.h"
#include "verify/report/table.h"

namespace fljsd {
namespace {

using Json = nlohmann::ordered_json;

struct GenOptions {
  CaseSpec spec;
  std::string family, recipe, dtype = "bf16", reduction = "batchmean", out;
  double strength = 0;
  Index valid_vocab = 0;
  bool list = false, json = false;
  const CLI::Option *tokens = nullptr, *hidden = nullptr, *vocab = nullptr;
  const CLI::Option *has_strength = nullptr, *has_valid_vocab = nullptr, *has_recipe = nullptr;
  std::vector<const CLI::Option*> beside_recipe;  // what a recipe says by itself
};

DType dtype_from(const std::string& text) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32, DType::f64})
    if (text == name(dtype)) return dtype;
  throw UsageError(unknown_name("dtype", text, {"bf16", "f16", "f32", "f64"}));
}

int list_families(bool json) {
  if (json) {
    Json list = Json::array();
    for (const Family& family : families()) {
      Json entry{{"number", family.number}, {"name", family.name}, {"description", family.description}};
      if (family.strength) {
        entry["strength"] = {{"meaning", family.strength->meaning},
                             {"min", json_number(family.strength->min)},
                             {"max", json_number(family.strength->max)}};
      }
      list.push_back(std::move(entry));
    }
    fmt::print("{}\n", list.dump(2));
    return exit_status::fine;
  }
  constexpr int indent = 24;
  const int width = std::min(terminal_width(), 110);
  for (const Family& family : families()) {
    std::string text(family.description);
    if (family.strength) {
      text += fmt::format(" --strength {} to {}: {}.", family.strength->min, family.strength->max,
                          family.strength->meaning);
    }
    const std::string heading = fmt::format("{:>4}  {:<17} ", family.number, family.name);
    fmt::print("{}{}\n", styled(Style::bold, heading), wrapped(text, width - indent, indent));
  }
  return exit_status::fine;
}

// What was written: a few facts, as a line or as JSON. `strength` is absent for a family without parameter.
void report(const GenOptions& options, const Case& c, const CaseSpec& spec, std::optional<double> strength) {
  const std::string_view family = find_family(spec.family).name;
  const Problem problem = c.problem();
  if (options.json) {
    Json json{{"schema", 1},
              {"family", family},
              {"tokens", problem.tokens()},
              {"student_hidden", problem.student_input.cols},
              {"teacher_hidden", problem.teacher_input.cols},
              {"vocab", problem.vocab()},
              {"seed", spec.seed},
              {"dtype", name(spec.dtype)},
              {"strength", strength ? json_number(*strength) : Json()},
              {"out", options.out}};
    fmt::print("{}\n", json.dump(2));
    return;
  }
  double bytes = 0;
  for (const Tensor* tensor : {&c.student_input, &c.student_weight, &c.teacher_input, &c.teacher_weight})
    bytes += static_cast<double>(tensor->bytes());
  fmt::print("{}: {}, {} tokens, vocab {}, hidden {} (teacher {}), {}, seed {}, {}\n", options.out, family,
             problem.tokens(), problem.vocab(), problem.student_input.cols, problem.teacher_input.cols,
             name(spec.dtype), spec.seed, byte_count(bytes));
}

std::optional<double> reported_strength(const CaseSpec& spec) {
  if (!find_family(spec.family).strength) return std::nullopt;
  return resolved_strength(spec);
}

// The case of a recipe, which says everything by itself.
int write_recipe(const GenOptions& options) {
  for (const CLI::Option* option : options.beside_recipe)
    if (option->count() > 0)
      throw UsageError(
          fmt::format("--recipe is a whole case; {} cannot stand beside it.", option->get_name()));
  if (options.out.empty()) throw UsageError("fljsd gen needs --out, the file to write.");
  const Recipe recipe = parse_recipe(options.recipe);
  require_outputs({{"--out", options.out}});
  const Case c = make_case(recipe);
  write_case(options.out, c);
  report(options, c, recipe.spec, reported_strength(recipe.spec));
  return exit_status::fine;
}

int run(GenOptions& options) {
  if (options.has_recipe->count() > 0) return write_recipe(options);
  if (options.list) return list_families(options.json);
  if (options.family.empty()) throw UsageError("fljsd gen needs a FAMILY; fljsd gen --list shows them.");
  for (const CLI::Option* size : {options.tokens, options.hidden, options.vocab})
    if (size->count() == 0) throw UsageError(fmt::format("fljsd gen needs {}.", size->get_name()));
  if (options.out.empty()) throw UsageError("fljsd gen needs --out, the file to write.");

  CaseSpec& spec = options.spec;
  std::vector<std::string> names;
  for (const Family& family : families()) {
    names.emplace_back(family.name);
    if (options.family == family.name || options.family == std::to_string(family.number))
      spec.family = family.number;
  }
  const Family& family = find_family(spec.family);
  if (options.family != family.name && options.family != std::to_string(family.number))
    throw UsageError(unknown_name("family", options.family, names));
  spec.dtype = dtype_from(options.dtype);
  spec.options.reduction = parse_reduction(options.reduction);
  if (options.has_strength->count() > 0) spec.strength = options.strength;
  if (options.has_valid_vocab->count() > 0) spec.options.valid_vocab = options.valid_vocab;
  require_outputs({{"--out", options.out}});

  Progress progress;
  progress.step(fmt::format("making {}", family.name));
  const Case c = make_case(spec);
  progress.step(fmt::format("writing {}", options.out));
  write_case(options.out, c);
  progress.pause();
  report(options, c, spec, reported_strength(spec));
  return exit_status::fine;
}

}  // namespace

Action setup_gen(CLI::App& app) {
  const auto options = std::make_shared<GenOptions>();
  CaseSpec& spec = options->spec;
  app.add_option("FAMILY", options->family, "Name or number of an input family");
  options->has_recipe = app.add_option(
      "--recipe", options->recipe,
      "In place of FAMILY and options: one line that is a whole case, as fljsd fuzz prints it");
  app.add_flag("--list", options->list, "Show the families and their parameters");
  options->tokens = app.add_option("--tokens", spec.tokens, "Rows of the inputs")->check(whole_number(0));
  options->hidden = app.add_option("--hidden", spec.student_hidden, "Columns of the student's tensors")
                        ->check(whole_number(1));
  app.add_option("--teacher-hidden", spec.teacher_hidden,
                 "Columns of the teacher's tensors; default: --hidden")
      ->check(whole_number(1));
  options->vocab = app.add_option("--vocab", spec.vocab, "Rows of the weights")->check(whole_number(1));
  app.add_option("--seed", spec.seed, "The same seed gives the same case on every machine; default 0")
      ->check(whole_number(0));
  app.add_option("--dtype", options->dtype, "Format of every tensor: bf16 (default), f16, f32 or f64")
      ->check(one_of("dtype", {"bf16", "f16", "f32", "f64"}));
  options->has_strength =
      app.add_option("--strength", options->strength,
                     "The family's own parameter (see --list); default: a usual value, chosen by the seed")
          ->check(real_number(-1e308, 1e308));
  app.add_flag("--bias", spec.with_bias, "Biases for both models");
  app.add_option("--beta", spec.options.beta, "Weight of the teacher in the mixture, 0 to 1; default 0.5")
      ->check(real_number(0, 1));
  app.add_option("--temperature", spec.options.temperature, "Divides the logits; default 1")
      ->check(real_number(0, 1e308));
  app.add_option("--reduction", options->reduction, "batchmean (default), sum or none")
      ->check(one_of("reduction", {"batchmean", "sum", "none"}));
  app.add_option("--ignore-index", spec.options.ignore_index,
                 "Tokens with this label do not count; default -100")
      ->check(whole_number(std::numeric_limits<long long>::min()));
  options->has_valid_vocab =
      app.add_option("--valid-vocab", options->valid_vocab, "Vocabulary entries from here on do not exist")
          ->check(whole_number(1));
  for (const CLI::Option* option : app.get_options())
    if (option != options->has_recipe) options->beside_recipe.push_back(option);
  app.add_option("--out", options->out, "The safetensors file to write");
  app.add_flag("--json", options->json,
               "Print JSON about what was written, or with --list about the families");
  return [options](const std::string&) { return run(*options); };
}

}  // namespace fljsd
