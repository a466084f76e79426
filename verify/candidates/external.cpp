// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/external.h"

#include <stdlib.h>

#include <fstream>
#include <functional>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "verify/cases/packed.h"
#include "verify/cases/result.h"
#include "verify/cases/safetensors.h"

namespace fljsd {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

fs::path make_folder() {
  std::error_code ignored;
  const fs::path base =
      fs::is_directory("/dev/shm", ignored) ? fs::path("/dev/shm") : fs::temp_directory_path();
  std::string name = (base / "fljsd-XXXXXX").string();
  if (!mkdtemp(name.data())) {
    throw std::system_error(errno, std::generic_category(),
                            "cannot make a folder for cases under " + base.string());
  }
  return name;
}

// Of a file's bytes, so that two copies of a case of the published size, of 2 GB each, need not be kept.
// Another one if the file is gone or shorter.
std::size_t digest_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string piece(std::size_t{1} << 16, '\0');
  std::size_t digest = 0;
  do {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    const std::string_view bytes(piece.data(), static_cast<std::size_t>(file.gcount()));
    // + 1: a piece more is another digest.
    digest = digest * 0x9e3779b97f4a7c15u + std::hash<std::string_view>{}(bytes) + 1;
  } while (file);
  return digest;
}

// The start of a line, for messages.
std::string excerpt(const std::string& line) {
  constexpr std::size_t shown = 120;
  return "'" + (line.size() > shown ? line.substr(0, shown) + "…" : line) + "'";
}

Declaration parse_declaration(const json& reply) {
  Declaration d;
  for (const auto& [key, value] : reply.items()) {
    if (key == "class") {
      bool known = false;
      for (AccuracyClass c :
           {AccuracyClass::float64, AccuracyClass::fp32_logits, AccuracyClass::bf16_logits}) {
        if (value == fljsd::name(c)) d.accuracy_class = c, known = true;
      }
      if (!known) {
        throw std::runtime_error("class is " + value.dump() +
                                 ", but it must be float64, fp32-logits or bf16-logits");
      }
    } else if (key == "deterministic") {
      if (!value.is_boolean())
        throw std::runtime_error("deterministic is " + value.dump() + ", but it must be true or false");
      d.deterministic = value.get<bool>();
    } else if (key == "strided") {
      if (!value.is_boolean())
        throw std::runtime_error("strided is " + value.dump() + ", but it must be true or false");
    } else if (key == "lacks") {
      for (const json& feature : value) {
        const auto known = feature.is_string() ? find_feature(feature.get<std::string>()) : std::nullopt;
        if (!known) {
          FeatureSet all;
          for (Feature f : all_features()) all.add(f);
          throw std::runtime_error("lacks names " + feature.dump() + ", but it may name only " + text(all));
        }
        d.lacks.add(*known);
      }
    } else if (key != "hello" && key != "ok" && key != "name") {
      throw std::runtime_error("it holds '" + key +
                               "', but only class, deterministic, lacks and strided are known");
    }
  }
  return d;
}

std::vector<double> values(const Tensor& tensor) {
  std::vector<double> decoded(static_cast<std::size_t>(tensor.elements()));
  load_run(tensor.dtype, tensor.data.get(), 0, tensor.elements(), decoded.data());
  return decoded;
}

RowMajorMatrix<double> matrix(const Tensor& tensor) {
  RowMajorMatrix<double> decoded(tensor.shape[0], tensor.shape[1]);
  load_run(tensor.dtype, tensor.data.get(), 0, tensor.elements(), decoded.data());
  return decoded;
}

// Throws FileError when a part that was asked for is not there.
Answer to_answer(const Case& c, const Request& request, const CaseResult& file, const std::string& origin) {
  const auto require = [&](bool there, const char* tensor) {
    if (!there) throw FileError(origin + " has no tensor '" + tensor + "', but it was asked for.");
  };
  Answer answer;
  const Problem problem = c.problem();
  answer.result.counted = count_tokens(problem, c.options);
  if (c.options.reduction != Reduction::none) {
    require(file.loss.has_value(), "loss");
    answer.result.loss = file.loss;
    answer.loss_format = file.loss_dtype;
  }
  if (request.token_loss) {
    require(file.token_loss.has_value(), "token_loss");
    answer.result.token_loss = values(*file.token_loss);
  }
  if (request.grad) {
    require(file.student_input_grad.has_value(), "student_input_grad");
    require(file.student_weight_grad.has_value(), "student_weight_grad");
    answer.result.student_input_grad = matrix(*file.student_input_grad);
    answer.result.student_weight_grad = matrix(*file.student_weight_grad);
    if (c.student_bias) {
      require(file.student_bias_grad.has_value(), "student_bias_grad");
      answer.result.student_bias_grad = values(*file.student_bias_grad);
    }
  }
  return answer;
}

}  // namespace

ExternalCandidate::ExternalCandidate(std::string command, ExternalLimits limits)
    : command_(std::move(command)), limits_(limits), folder_(make_folder()) {}

ExternalCandidate::~ExternalCandidate() {
  process_.reset();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

Failure ExternalCandidate::failure(Failure::Kind kind, std::string text) {
  Failure f{kind, std::move(text), process_ ? process_->diagnostics() : ""};
  process_.reset();  // whatever state it is in, the next case gets a new process
  return f;
}

Failure ExternalCandidate::broken_off(LineProcess::Read read, std::chrono::milliseconds limit) {
  switch (read) {
    case LineProcess::Read::time_out:
      return failure(Failure::Kind::time_out,
                     fmt::format("no answer within {:g} s", double(limit.count()) / 1000));
    case LineProcess::Read::too_long:
      return failure(Failure::Kind::garbage, "a line of more than 1 MiB on stdout");
    default: {
      process_->close(std::chrono::seconds(1));  // closed stdout: let it end by itself, to learn how
      return failure(Failure::Kind::crash, "the process " + process_->ending() + " before it answered");
    }
  }
}

void ExternalCandidate::start() {
  process_ = std::make_unique<LineProcess>(command_);
  const auto refuse = [&](const std::string& why) {
    const std::string said = process_->diagnostics();
    process_.reset();
    throw std::runtime_error("exec:" + command_ + " did not introduce itself: " + why + "." +
                             (said.empty() ? "" : " The end of its stderr:\n" + said));
  };
  std::string line;
  if (!process_->write_line(R"({"hello": 1})", limits_.start)) {
    process_->close(std::chrono::seconds(1));
    refuse("the process " + process_->ending());
  }
  switch (process_->read_line(line, limits_.start)) {
    case LineProcess::Read::line: break;
    case LineProcess::Read::time_out:
      refuse(fmt::format("no answer to hello within {:g} s", double(limits_.start.count()) / 1000));
      break;
    case LineProcess::Read::too_long: refuse("a line of more than 1 MiB on stdout"); break;
    case LineProcess::Read::closed:
      process_->close(std::chrono::seconds(1));
      refuse("the process " + process_->ending());
      break;
  }
  const json reply = json::parse(line, nullptr, false);
  if (!reply.is_object()) refuse("its answer " + excerpt(line) + " is not a JSON object");
  try {
    declaration_ = parse_declaration(reply);
    strided_ = reply.value("strided", false);
  } catch (const std::runtime_error& e) {
    refuse(e.what());
  }
}

Declaration ExternalCandidate::declaration() {
  if (!declaration_) start();
  return *declaration_;
}

Outcome ExternalCandidate::compute_views(const Problem& problem, const Options& options,
                                         const Request& request) {
  Case c = packed(problem, options);
  const Layout layout = layout_of(problem);
  c.provenance = {{"row_padding", std::to_string(layout.row_padding)},
                  {"misalignment", std::to_string(layout.misalignment)}};
  return compute(c, request);
}

Outcome ExternalCandidate::compute(const Case& c, const Request& request) {
  if (!process_) start();
  const fs::path case_path = folder_ / fmt::format("case-{}.safetensors", number_);
  const fs::path result_path = folder_ / fmt::format("result-{}.safetensors", number_);
  ++number_;
  write_case(case_path, c);
  const std::size_t before = digest_of(case_path);
  // Removed on every way out: a campaign must not fill the memory that the folder may live in.
  struct Cleanup {
    const fs::path &a, &b;
    ~Cleanup() {
      std::error_code ignored;
      fs::remove(a, ignored);
      fs::remove(b, ignored);
    }
  } cleanup{case_path, result_path};

  if (process_->has_pending_output()) {
    return failure(Failure::Kind::garbage, "output on stdout that nobody asked for");
  }
  json want = json::array({"loss"});
  if (request.token_loss) want.push_back("token_loss");
  if (request.grad) want.push_back("grad");
  const json line = {{"case", case_path.string()}, {"result", result_path.string()}, {"want", want}};
  if (!process_->write_line(line.dump(), limits_.answer))
    return broken_off(LineProcess::Read::closed, limits_.answer);

  std::string text;
  if (const auto read = process_->read_line(text, limits_.answer); read != LineProcess::Read::line) {
    return broken_off(read, limits_.answer);
  }
  const json reply = json::parse(text, nullptr, false);
  const bool ok = reply.is_object() && reply.value("ok", json()) == true;
  const bool error = reply.is_object() && reply.contains("error") && reply["error"].is_string();
  if (ok == error)
    return failure(Failure::Kind::garbage, "the line " + excerpt(text) + " on stdout is not an answer");
  if (digest_of(case_path) != before)
    return failure(Failure::Kind::input_modified, "the case file was changed");
  if (error) {
    const std::string message = reply["error"].get<std::string>();
    if (message.starts_with("unsupported:")) return Unsupported{message};
    return Failure{Failure::Kind::error, message, process_->diagnostics()};
  }
  try {
    const CaseResult result = read_result(result_path);
    check_result_shapes(c, result, result_path.filename().string());
    return to_answer(c, request, result, result_path.filename().string());
  } catch (const FileError& e) {
    return Failure{Failure::Kind::bad_result, e.what(), process_->diagnostics()};
  }
}

std::optional<Failure> ExternalCandidate::reset() {
  if (!process_) return std::nullopt;
  if (!process_->close(limits_.exit)) {
    return failure(Failure::Kind::hang_at_exit, fmt::format("still running {:g} s after its input was closed",
                                                            double(limits_.exit.count()) / 1000));
  }
  process_.reset();
  return std::nullopt;
}

}  // namespace fljsd
