// SPDX-License-Identifier: Apache-2.0
// What an implementation promises about its arithmetic. Budgets follow from the class
// (verify/judge/budget.h).
#pragma once

#include <string>

namespace fljsd {

enum class AccuracyClass {
  float64,      // float64 throughout; inputs are whatever they are
  fp32_logits,  // logits accumulated and kept in fp32, fp32 or better after that; gradients may be stored in
                // the input's format
  bf16_logits,  // logits rounded to bf16 before the loss is taken
};

inline const char* name(AccuracyClass c) {
  switch (c) {
    case AccuracyClass::float64: return "float64";
    case AccuracyClass::fp32_logits: return "fp32-logits";
    case AccuracyClass::bf16_logits: return "bf16-logits";
  }
  return "?";
}

}  // namespace fljsd
