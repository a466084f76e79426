// SPDX-License-Identifier: Apache-2.0
// The twin of the class bf16-logits: right, and a base for faults that hide behind the rounding of its
// logits.
#pragma once

#include "reference/dtype.h"
#include "verify/zoo/twin.h"

namespace fljsd::zoo {

struct Bfloat16LogitsTwin : Twin<float> {
  Declaration declaration() const { return {AccuracyClass::bf16_logits, true, {}}; }
  float logit(Model model, Index token, Index entry) const override {
    return static_cast<float>(round_to(DType::bf16, Twin::logit(model, token, entry)));
  }
};

}  // namespace fljsd::zoo
