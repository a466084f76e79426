// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/serve.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "verify/cases/layout.h"
#include "verify/cases/result.h"
#include "verify/cases/safetensors.h"

namespace fljsd {
namespace {

using nlohmann::json;

// The engine's two channels, moved away from where the candidate's own reading and printing would meet them.
class Channels {
 public:
  Channels() : requests_(fdopen(dup(STDIN_FILENO), "r")), replies_(fdopen(dup(STDOUT_FILENO), "w")) {
    const int nothing = open("/dev/null", O_RDONLY);
    if (!requests_ || !replies_ || nothing < 0)
      throw std::system_error(errno, std::generic_category(), "standard input and output cannot be used");
    dup2(nothing, STDIN_FILENO);
    close(nothing);
    std::fflush(stdout);
    dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  ~Channels() {
    std::fclose(requests_);
    std::fclose(replies_);
  }
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  bool read_line(std::string& line) {
    line.clear();
    for (int c; (c = std::getc(requests_)) != EOF;) {
      if (c == '\n') return true;
      line += static_cast<char>(c);
    }
    return false;
  }
  void write_line(const std::string& line) {
    std::fprintf(replies_, "%s\n", line.c_str());
    std::fflush(replies_);
  }

 private:
  std::FILE *requests_, *replies_;
};

json introduction(Candidate& candidate) {
  const Declaration declaration = candidate.declaration();
  json lacks = json::array();
  for (Feature feature : all_features())
    if (declaration.lacks.has(feature)) lacks.push_back(name(feature));
  return {{"class", name(declaration.accuracy_class)},
          {"deterministic", declaration.deterministic},
          {"lacks", lacks},
          {"strided", candidate.takes_views()}};
}

Tensor tensor(std::vector<Index> shape, const double* values, std::size_t count) {
  return make_tensor(DType::f64, std::move(shape), std::vector<double>(values, values + count));
}

CaseResult file_of(const Case& c, const Answer& answer) {
  const Result& result = answer.result;
  CaseResult file;
  file.loss = result.loss;
  file.loss_dtype = answer.loss_format;
  const auto losses = static_cast<Index>(result.token_loss.size());
  if (losses > 0 || c.problem().tokens() == 0)
    file.token_loss = tensor({losses}, result.token_loss.data(), result.token_loss.size());
  const auto matrix = [](const RowMajorMatrix<double>& m) {
    return tensor({m.rows(), m.cols()}, m.data(), static_cast<std::size_t>(m.size()));
  };
  // An empty batch has an input gradient of no rows, which the matrix of an absent one looks like.
  if (result.student_weight_grad.size() > 0) {
    file.student_input_grad = matrix(result.student_input_grad);
    file.student_weight_grad = matrix(result.student_weight_grad);
  }
  if (!result.student_bias_grad.empty()) {
    file.student_bias_grad = tensor({static_cast<Index>(result.student_bias_grad.size())},
                                    result.student_bias_grad.data(), result.student_bias_grad.size());
  }
  return file;
}

// Laid out as the file's metadata say, if they do.
Outcome compute(Candidate& candidate, const Case& c, const Request& wanted) {
  const auto number = [&](const char* key, Index largest) -> Index {
    const auto found = c.provenance.find(key);
    if (found == c.provenance.end()) return 0;
    Index value = -1;
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
    if (value < 0 || value > largest)
      throw FileError(fmt::format("metadata {} is '{}', but it must be a whole number from 0 to {}.", key,
                                  found->second, largest));
    return value;
  };
  const Layout layout{number("row_padding", 1 << 20), static_cast<std::size_t>(number("misalignment", 63))};
  if (!candidate.takes_views() || layout.is_plain()) return candidate.compute(c, wanted);
  const LaidOutCase laid_out(c, layout);
  return candidate.compute_views(laid_out.problem(), c.options, wanted);
}

json reply(Candidate& candidate, const json& request) {
  if (request.contains("hello")) return introduction(candidate);
  const Case c = read_case(request.at("case").get<std::string>());
  Request wanted;
  wanted.token_loss = wanted.grad = false;
  for (const json& part : request.at("want")) {
    if (part == "token_loss") wanted.token_loss = true;
    if (part == "grad") wanted.grad = true;
  }
  const Outcome outcome = compute(candidate, c, wanted);
  if (const auto* unsupported = std::get_if<Unsupported>(&outcome))
    return {{"error", "unsupported: " + unsupported->text}};
  if (const auto* failure = std::get_if<Failure>(&outcome)) return {{"error", failure->text}};
  write_result(request.at("result").get<std::string>(), file_of(c, std::get<Answer>(outcome)));
  return {{"ok", true}};
}

}  // namespace

int serve(Candidate& candidate) {
  Channels channels;
  for (std::string line; channels.read_line(line);) {
    json answer;
    try {
      answer = reply(candidate, json::parse(line));
    } catch (const std::exception& error) {
      answer = {{"error", error.what()}};
    }
    channels.write_line(answer.dump(-1, ' ', false, json::error_handler_t::replace));
  }
  return 0;
}

}  // namespace fljsd
