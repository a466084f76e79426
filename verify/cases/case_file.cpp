// SPDX-License-Identifier: Apache-2.0
// Cases as safetensors files.
#include <charconv>
#include <cstring>

#include <fmt/format.h>

#include "verify/cases/file_parts.h"
#include "verify/cases/safetensors.h"

namespace fljsd {
namespace {

// Text that is a number as a whole, without spaces or a leading '+'. std::from_chars rounds correctly and
// knows no locale; it reads "nan" and "inf" too, which validate() then refuses.
template <class Number>
Number parse_number(const std::string& key, const std::string& text, const char* wanted,
                    const std::string& origin) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    refuse_file(origin, fmt::format("metadata {} is {}, but it must be {}.", key, in_quotes(text), wanted));
  return value;
}

template <class Number>
std::string number_text(Number value) {
  char buffer[32];  // the shortest form of a double has at most 24 characters
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

// Takes one metadata string for what it is; false for a key that is not an option.
bool read_option(Options& options, const std::string& key, const std::string& text,
                 const std::string& origin) {
  constexpr const char* real = "a decimal number within the range of double";
  constexpr const char* whole = "a whole number that fits into 64 bits";
  if (key == "beta") {
    options.beta = parse_number<double>(key, text, real, origin);
  } else if (key == "temperature") {
    options.temperature = parse_number<double>(key, text, real, origin);
  } else if (key == "ignore_index") {
    options.ignore_index = parse_number<std::int64_t>(key, text, whole, origin);
  } else if (key == "valid_vocab") {
    options.valid_vocab = parse_number<std::int64_t>(key, text, whole, origin);
  } else if (key == "reduction") {
    options.reduction = parse_reduction(text);
  } else {
    return false;
  }
  return true;
}

std::map<std::string, std::string> option_texts(const Options& options) {
  std::map<std::string, std::string> texts{{"beta", number_text(options.beta)},
                                           {"temperature", number_text(options.temperature)},
                                           {"ignore_index", number_text(options.ignore_index)},
                                           {"reduction", name(options.reduction)}};
  if (options.valid_vocab) texts["valid_vocab"] = number_text(*options.valid_vocab);
  return texts;
}

// Labels are copied out of the file: there they need not be aligned.
std::vector<std::int64_t> read_labels(const FileTensor& tensor, const std::string& origin) {
  if (tensor.dtype) refuse_file(origin, "labels has a floating-point dtype, but it must be I64.");
  if (tensor.shape.size() != 1) {
    refuse_file(origin,
                fmt::format("labels has shape {}, but it must have 1 dimension.", shape_text(tensor.shape)));
  }
  std::vector<std::int64_t> labels(static_cast<std::size_t>(tensor.shape[0]));
  if (!labels.empty()) std::memcpy(labels.data(), tensor.data.get(), labels.size() * sizeof(std::int64_t));
  return labels;
}

Case case_from(const SafetensorsFile& file, const std::string& origin) {
  refuse_other_tensors(file,
                       {"student_input", "student_weight", "teacher_input", "teacher_weight", "student_bias",
                        "teacher_bias", "labels"},
                       "a case", origin);
  const auto matrix = [&](const char* name) {
    const std::optional<Tensor> tensor = float_tensor(file, name, 2, origin);
    if (!tensor) refuse_file(origin, fmt::format("the tensor {} is missing, but a case must have it.", name));
    return *tensor;
  };
  Case c;
  c.student_input = matrix("student_input");
  c.student_weight = matrix("student_weight");
  c.teacher_input = matrix("teacher_input");
  c.teacher_weight = matrix("teacher_weight");
  c.student_bias = float_tensor(file, "student_bias", 1, origin);
  c.teacher_bias = float_tensor(file, "teacher_bias", 1, origin);
  if (const auto labels = file.tensors.find("labels"); labels != file.tensors.end())
    c.labels = read_labels(labels->second, origin);
  try {
    for (const auto& [key, text] : file.metadata)
      if (!read_option(c.options, key, text, origin)) c.provenance[key] = text;
    validate(c.problem(), c.options);
  } catch (const InvalidProblem& error) {
    refuse_file(origin, error.what());
  }
  return c;
}

}  // namespace

Case read_case(const std::filesystem::path& path) {
  return case_from(read_safetensors(path), path.string());
}

Case parse_case(std::span<const std::byte> bytes, const std::string& origin) {
  return case_from(parse_safetensors(bytes, origin), origin);
}

void write_case(const std::filesystem::path& path, const Case& c) {
  SafetensorsFile file;
  file.tensors = {{"student_input", file_tensor(c.student_input)},
                  {"student_weight", file_tensor(c.student_weight)},
                  {"teacher_input", file_tensor(c.teacher_input)},
                  {"teacher_weight", file_tensor(c.teacher_weight)}};
  if (c.student_bias) file.tensors["student_bias"] = file_tensor(*c.student_bias);
  if (c.teacher_bias) file.tensors["teacher_bias"] = file_tensor(*c.teacher_bias);
  if (c.labels) {
    // Borrowed, not owned: written before this function returns.
    const auto* bytes = reinterpret_cast<const std::byte*>(c.labels->data());
    file.tensors["labels"] = {std::nullopt,
                              {static_cast<Index>(c.labels->size())},
                              std::shared_ptr<const std::byte>(std::shared_ptr<const void>(), bytes)};
  }
  file.metadata = option_texts(c.options);
  for (const auto& [key, text] : c.provenance) {
    if (!file.metadata.emplace(key, text).second || key == "valid_vocab")
      refuse_file(path.string(),
                  fmt::format("provenance has the key {}, but that name stands for an option.", key));
  }
  write_safetensors(path, file);
}

}  // namespace fljsd
