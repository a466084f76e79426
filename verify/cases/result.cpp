// SPDX-License-Identifier: Apache-2.0
#include "verify/cases/result.h"

#include <fmt/format.h>

#include "verify/cases/file_parts.h"

namespace fljsd {
namespace {

CaseResult result_from(const SafetensorsFile& file, const std::string& origin) {
  refuse_other_tensors(
      file, {"loss", "token_loss", "student_input_grad", "student_weight_grad", "student_bias_grad"},
      "a result", origin);
  CaseResult result;
  if (const std::optional<Tensor> loss = float_tensor(file, "loss", 1, origin)) {
    if (loss->shape[0] != 1)
      refuse_file(origin, fmt::format("loss has shape {}, but it must be [1].", shape_text(loss->shape)));
    result.loss = load(loss->dtype, loss->data.get(), 0);
    result.loss_dtype = loss->dtype;
  }
  result.token_loss = float_tensor(file, "token_loss", 1, origin);
  result.student_input_grad = float_tensor(file, "student_input_grad", 2, origin);
  result.student_weight_grad = float_tensor(file, "student_weight_grad", 2, origin);
  result.student_bias_grad = float_tensor(file, "student_bias_grad", 1, origin);
  return result;
}

}  // namespace

CaseResult read_result(const std::filesystem::path& path) {
  return result_from(read_safetensors(path), path.string());
}

CaseResult parse_result(std::span<const std::byte> bytes, const std::string& origin) {
  return result_from(parse_safetensors(bytes, origin), origin);
}

void write_result(const std::filesystem::path& path, const CaseResult& result) {
  SafetensorsFile file;
  if (result.loss) file.tensors["loss"] = file_tensor(make_tensor(result.loss_dtype, {1}, {*result.loss}));
  const auto add = [&](const char* name, const std::optional<Tensor>& tensor) {
    if (tensor) file.tensors[name] = file_tensor(*tensor);
  };
  add("token_loss", result.token_loss);
  add("student_input_grad", result.student_input_grad);
  add("student_weight_grad", result.student_weight_grad);
  add("student_bias_grad", result.student_bias_grad);
  write_safetensors(path, file);
}

void check_result_shapes(const Case& c, const CaseResult& result, const std::string& origin) {
  const auto check = [&](const char* name, const std::optional<Tensor>& tensor,
                         const std::vector<Index>& shape) {
    if (tensor && tensor->shape != shape) {
      refuse_file(origin, fmt::format("{} has shape {}, but for this case it must be {}.", name,
                                      shape_text(tensor->shape), shape_text(shape)));
    }
  };
  const Index tokens = c.student_input.shape[0], hidden = c.student_input.shape[1];
  const Index vocab = c.student_weight.shape[0];
  check("token_loss", result.token_loss, {tokens});
  check("student_input_grad", result.student_input_grad, {tokens, hidden});
  check("student_weight_grad", result.student_weight_grad, {vocab, hidden});
  check("student_bias_grad", result.student_bias_grad, {vocab});
}

}  // namespace fljsd
