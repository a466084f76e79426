// SPDX-License-Identifier: Apache-2.0
// What an implementation answered for a case, as a safetensors file.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "verify/cases/case.h"
#include "verify/cases/safetensors.h"

namespace fljsd {

// Any part may be absent. Tensors may have any floating-point dtype.
struct CaseResult {
  std::optional<double> loss;                 // tensor "loss", shape [1]
  DType loss_dtype = DType::f64;              // what it is stored in: ulps are counted in it
  std::optional<Tensor> token_loss;           // [tokens]
  std::optional<Tensor> student_input_grad;   // [tokens, student_hidden]
  std::optional<Tensor> student_weight_grad;  // [vocab, student_hidden]
  std::optional<Tensor> student_bias_grad;    // [vocab]
};

// Reads what is there; the tensors stay in the mapped file. Throws FileError for a broken file, a tensor name
// other than the five above, a loss that is not [1], or I64 tensors.
CaseResult read_result(const std::filesystem::path& path);
CaseResult parse_result(std::span<const std::byte> bytes, const std::string& origin);

// The loss is written in loss_dtype, tensors as they are.
void write_result(const std::filesystem::path& path, const CaseResult& result);

// Throws FileError, one sentence that begins with `origin`, when a tensor of the result does not have the
// shape that the case demands.
void check_result_shapes(const Case& c, const CaseResult& result, const std::string& origin = "the result");

}  // namespace fljsd
