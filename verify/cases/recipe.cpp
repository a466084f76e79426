// SPDX-License-Identifier: Apache-2.0
#include "verify/cases/recipe.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "verify/cases/random.h"

namespace fljsd {
namespace {

constexpr std::array tensor_table{TensorName::student_input, TensorName::student_weight,
                                  TensorName::teacher_input, TensorName::teacher_weight,
                                  TensorName::student_bias,  TensorName::teacher_bias};
constexpr std::array dtype_table{DType::bf16, DType::f16, DType::f32, DType::f64};
constexpr std::array biases_table{Biases::family, Biases::both, Biases::student, Biases::teacher};
constexpr std::array reduction_table{Reduction::batchmean, Reduction::sum, Reduction::none};

// The entry of a table of named values whose name is `text`, or nothing.
template <class Table>
auto find_named(const Table& table, std::string_view text) {
  std::optional<typename Table::value_type> found;
  for (const auto value : table)
    if (text == name(value)) found = value;
  return found;
}

template <class Table>
std::string names(const Table& table) {
  std::string text;
  for (std::size_t i = 0; i < table.size(); ++i)
    text += (i == 0 ? "" : i + 1 == table.size() ? " or " : ", ") + std::string(name(table[i]));
  return text;
}

// One key=value of a recipe, with readers that refuse in one sentence.
struct Entry {
  std::string_view key, value;

  [[noreturn]] void refuse(std::string_view allowed) const {
    throw InvalidProblem(fmt::format("recipe: {} is '{}', but it must be {}.", key, value, allowed));
  }
  template <class Table>
  auto one_of(const Table& table) const {
    const auto found = find_named(table, value);
    if (!found) refuse(names(table));
    return *found;
  }
  template <class Integer>
  Integer integer(Integer min, Integer max) const {
    Integer result{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || end != value.data() + value.size() || result < min || result > max)
      refuse(fmt::format("an integer in [{}, {}]", min, max));
    return result;
  }
  Index size(Index min) const { return integer<Index>(min, Index{1} << 40); }
  double number() const {
    double result{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error == std::errc::result_out_of_range || error != std::errc() || end != value.data() + value.size())
      refuse("a number, inf, -inf or nan");
    return result;
  }
};

// `student_bias[3]`, or nothing when the key has no brackets.
std::optional<Edit> parse_edit(const Entry& entry) {
  const std::size_t open = entry.key.find('[');
  if (open == std::string_view::npos || entry.key.back() != ']') return std::nullopt;
  const auto tensor = find_named(tensor_table, entry.key.substr(0, open));
  if (!tensor) {
    throw InvalidProblem(fmt::format("recipe: there is no tensor '{}' to edit; it must be {}.",
                                     entry.key.substr(0, open), names(tensor_table)));
  }
  const Entry index{"the element of an edit", entry.key.substr(open + 1, entry.key.size() - open - 2)};
  return Edit{*tensor, index.size(0), entry.number()};
}

void parse_entry(const Entry& entry, Recipe& recipe) {
  const std::string_view key = entry.key;
  CaseSpec& spec = recipe.spec;
  if (key == "family") {
    spec.family = find_family(entry.value).number;
  } else if (key == "tokens") {
    spec.tokens = entry.size(0);
  } else if (key == "hidden") {
    spec.student_hidden = entry.size(1);
  } else if (key == "teacher_hidden") {
    spec.teacher_hidden = entry.size(1);
  } else if (key == "vocab") {
    spec.vocab = entry.size(1);
  } else if (key == "seed") {
    spec.seed = entry.integer<std::uint64_t>(0, std::numeric_limits<std::uint64_t>::max());
  } else if (key == "strength") {
    spec.strength = entry.number();
  } else if (key == "dtype") {
    spec.dtype = entry.one_of(dtype_table);
  } else if (key == "beta") {
    spec.options.beta = entry.number();
  } else if (key == "temperature") {
    spec.options.temperature = entry.number();
  } else if (key == "reduction") {
    spec.options.reduction = entry.one_of(reduction_table);
  } else if (key == "ignore_index") {
    spec.options.ignore_index =
        entry.integer(std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
  } else if (key == "valid_vocab") {
    spec.options.valid_vocab = entry.size(1);
  } else if (key == "bias") {
    recipe.biases = entry.one_of(biases_table);
  } else if (key == "ignored") {
    recipe.ignored_percent = entry.integer(0, 100);
  } else if (key == "poisoned") {
    recipe.poisoned = entry.integer(0, 1) == 1;
  } else if (key == "row_padding") {
    recipe.layout.row_padding = entry.size(0);
  } else if (key == "misalignment") {
    recipe.layout.misalignment = entry.integer<std::size_t>(0, 63);
  } else if (const auto tensor = find_named(tensor_table, key)) {
    recipe.dtypes[*tensor] = entry.one_of(dtype_table);
  } else if (const auto edit = parse_edit(entry)) {
    recipe.edits.push_back(*edit);
  } else {
    throw InvalidProblem(fmt::format(
        "recipe: '{}' is not a key; keys are family, tokens, hidden, teacher_hidden, vocab, seed, strength, "
        "dtype, "
        "beta, temperature, reduction, ignore_index, valid_vocab, bias, ignored, poisoned, row_padding, "
        "misalignment, a tensor's name, and a tensor's name with an element in brackets.",
        key));
  }
}

// What recipe-made random numbers are for; families have streams of their own.
constexpr std::uint64_t label_stream = 0x7265636970650001;

// The tensor as it is in the case, or null.
Tensor* find_tensor(Case& c, TensorName tensor) {
  switch (tensor) {
    case TensorName::student_input: return &c.student_input;
    case TensorName::student_weight: return &c.student_weight;
    case TensorName::teacher_input: return &c.teacher_input;
    case TensorName::teacher_weight: return &c.teacher_weight;
    case TensorName::student_bias: return c.student_bias ? &*c.student_bias : nullptr;
    case TensorName::teacher_bias: return c.teacher_bias ? &*c.teacher_bias : nullptr;
  }
  return nullptr;
}

// All elements as doubles, changed by `change`, and stored again. Rounding what has not changed is exact.
template <class Change>
void rewrite(Tensor& tensor, const Change& change) {
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  load_run(tensor.dtype, tensor.data.get(), 0, tensor.elements(), values.data());
  change(values);
  tensor = make_tensor(tensor.dtype, tensor.shape, values);
}

void poison(Case& c) {
  const Problem problem = c.problem();
  for (Tensor* tensor : {&c.student_input, &c.teacher_input}) {
    rewrite(*tensor, [&](std::vector<double>& values) {
      const Index cols = tensor->shape[1];
      for (Index t = 0; t < tensor->shape[0]; ++t)
        if (!is_counted(problem, c.options, t))
          std::fill_n(values.begin() + t * cols, cols, std::numeric_limits<double>::quiet_NaN());
    });
  }
}

}  // namespace

const char* name(TensorName tensor) {
  switch (tensor) {
    case TensorName::student_input: return "student_input";
    case TensorName::student_weight: return "student_weight";
    case TensorName::teacher_input: return "teacher_input";
    case TensorName::teacher_weight: return "teacher_weight";
    case TensorName::student_bias: return "student_bias";
    case TensorName::teacher_bias: return "teacher_bias";
  }
  return "?";
}

std::span<const TensorName> tensor_names() {
  return tensor_table;
}

const char* name(Biases biases) {
  switch (biases) {
    case Biases::family: return "family";
    case Biases::both: return "both";
    case Biases::student: return "student";
    case Biases::teacher: return "teacher";
  }
  return "?";
}

std::string to_text(const Recipe& recipe) {
  const CaseSpec& spec = recipe.spec;
  const CaseSpec plain;
  std::string text = fmt::format("family={} tokens={} hidden={}", find_family(spec.family).name, spec.tokens,
                                 spec.student_hidden);
  const auto add = [&](std::string_view key, const auto& value) {
    text += fmt::format(" {}={}", key, value);
  };
  if (spec.teacher_hidden != 0 && spec.teacher_hidden != spec.student_hidden)
    add("teacher_hidden", spec.teacher_hidden);
  add("vocab", spec.vocab);
  add("seed", spec.seed);
  if (spec.strength) add("strength", *spec.strength);
  if (spec.dtype != plain.dtype) add("dtype", name(spec.dtype));
  for (const auto& [tensor, dtype] : recipe.dtypes) add(name(tensor), name(dtype));
  if (recipe.biases != Biases::family) add("bias", name(recipe.biases));
  const Options& options = spec.options;
  if (options.beta != plain.options.beta) add("beta", options.beta);
  if (options.temperature != plain.options.temperature) add("temperature", options.temperature);
  if (options.reduction != plain.options.reduction) add("reduction", name(options.reduction));
  if (options.ignore_index != plain.options.ignore_index) add("ignore_index", options.ignore_index);
  if (options.valid_vocab) add("valid_vocab", *options.valid_vocab);
  if (recipe.ignored_percent) add("ignored", *recipe.ignored_percent);
  if (recipe.poisoned) add("poisoned", 1);
  for (const Edit& edit : recipe.edits)
    add(fmt::format("{}[{}]", name(edit.tensor), edit.element), edit.value);
  if (recipe.layout.row_padding != 0) add("row_padding", recipe.layout.row_padding);
  if (recipe.layout.misalignment != 0) add("misalignment", recipe.layout.misalignment);
  return text;
}

Recipe parse_recipe(std::string_view text) {
  Recipe recipe;
  std::set<std::string_view> keys;
  constexpr std::string_view space = " \t\r\n";
  for (std::size_t begin = text.find_first_not_of(space); begin != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(space, begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos || equals == 0)
      throw InvalidProblem(fmt::format("recipe: '{}' is not of the form key=value.", word));
    const Entry entry{word.substr(0, equals), word.substr(equals + 1)};
    if (!keys.insert(entry.key).second &&
        entry.key.back() != ']')  // later edits of an element replace earlier
      throw InvalidProblem(fmt::format("recipe: {} is given twice.", entry.key));
    parse_entry(entry, recipe);
    begin = text.find_first_not_of(space, end);
  }
  return recipe;
}

Case make_case(const Recipe& recipe) {
  CaseSpec spec = recipe.spec;
  spec.with_bias = recipe.biases != Biases::family;
  Case c = make_case(spec);
  for (const auto& [tensor, dtype] : recipe.dtypes) {
    Tensor* const target = find_tensor(c, tensor);
    if (target == nullptr) continue;
    spec.dtype = dtype;
    Case other = make_case(spec);
    *target = *find_tensor(other, tensor);
  }
  if (recipe.biases == Biases::student) c.teacher_bias.reset();
  if (recipe.biases == Biases::teacher) c.student_bias.reset();

  if (recipe.ignored_percent) {
    const Random random(spec.seed, label_stream);
    const std::int64_t ignore = spec.options.ignore_index, other = ignore == 7 ? 8 : 7;
    c.labels.emplace();
    for (Index t = 0; t < spec.tokens; ++t)
      c.labels->push_back(random.below(t, 100) < *recipe.ignored_percent ? ignore : other);
  }
  if (recipe.poisoned) poison(c);
  for (const Edit& edit : recipe.edits) {
    Tensor* const target = find_tensor(c, edit.tensor);
    if (target == nullptr || target->elements() == 0) continue;
    rewrite(*target, [&](std::vector<double>& values) {
      values[static_cast<std::size_t>(edit.element) % values.size()] = edit.value;
    });
  }
  validate(c.problem(), c.options);
  c.provenance["recipe"] = to_text(recipe);
  return c;
}

}  // namespace fljsd
