// SPDX-License-Identifier: Apache-2.0
// The implementations whose rounding is modelled, by name. To add one, add an entry in models.cpp.
#pragma once

#include <span>
#include <string_view>

#include "reference/accuracy_class.h"
#include "reference/rounding/pipeline.h"

namespace fljsd {

struct RoundingModel {
  const char* name;         // as on a command line: "torch-eager-bf16"
  const char* description;  // one sentence
  Pipeline pipeline;
  AccuracyClass accuracy_class;  // what it promises
};

// All of them, the least accurate first.
std::span<const RoundingModel> rounding_models();

// Null when no model has that name.
const RoundingModel* find_rounding_model(std::string_view name);

}  // namespace fljsd
