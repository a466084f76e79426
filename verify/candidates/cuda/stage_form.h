// SPDX-License-Identifier: Apache-2.0
// What stands between a case and the CUDA stages: one format a model, and the logits that they promise
// nothing about.
#pragma once

#include <vector>

#include "reference/problem.h"

namespace fljsd {

// A model whose two matrices have one format. A stage multiplies matrices of one format; where a case mixes
// them, both are given as f32, which holds every bf16 and f16 number. The views are changed in place, and are
// valid while this lives.
class OneFormat {
 public:
  OneFormat(MatrixView& input, MatrixView& weight);

 private:
  MatrixView widen(const MatrixView& m);
  std::vector<std::vector<float>> storage_;
};

// Whether a token that counts has a finite logit beyond 2^125 in magnitude, before or after the temperature
// (fljsd.h: differences of two such logits, in bits, leave fp32).
bool has_enormous_logits(const Problem& problem, const Options& options);

}  // namespace fljsd
