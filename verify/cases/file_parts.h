// SPDX-License-Identifier: Apache-2.0
// What reading and writing of cases and results share. Not for use outside verify/cases.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "verify/cases/safetensors.h"

namespace fljsd {

// Throws FileError with the sentence "ORIGIN: SENTENCE".
[[noreturn]] void refuse_file(const std::string& origin, const std::string& sentence);

// Text from a file, fit to be shown: quoted, one line, not endless.
std::string in_quotes(const std::string& text);

// Refuses a file that holds a tensor with a name other than these; `kind` says what the file is.
void refuse_other_tensors(const SafetensorsFile& file, std::initializer_list<const char*> allowed,
                          const std::string& kind, const std::string& origin);

// The tensor of that name, if the file has one; refuses I64 and another rank.
std::optional<Tensor> float_tensor(const SafetensorsFile& file, const std::string& name, std::size_t rank,
                                   const std::string& origin);

// The tensor as it is put into a file; the data are shared.
FileTensor file_tensor(const Tensor& tensor);

}  // namespace fljsd
