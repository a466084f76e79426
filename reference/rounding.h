// SPDX-License-Identifier: Apache-2.0
// CPU models of where published pipelines round, step by step.
//
//   const RoundingModel* liger = find_rounding_model("liger");
//   Result r = run_pipeline(problem, options, Wanted::all(), liger->pipeline);
//
// The models say what the roundings cost, not what a particular GPU returns. Every fp32 sum here has a stated
// order (rounding/ordered_product.h, rounding/tree_sum.h); a GPU sums in another order, its tensor cores
// align and truncate products instead of rounding each sum, its compiler contracts a·b + c, and its
// exponentials are off by an ulp or two. The rounding to a stored format, which dominates, is the same.
// One model is nearer to the machine: the logits of `hopper` are those of an H200, bit for bit.
//
// Elementary functions are those of the C library, so the last bit of an fp32 value may differ between
// machines.
#pragma once

#include <span>
#include <vector>

#include "reference/linear_jsd.h"
#include "reference/rounding/models.h"
#include "reference/rounding/pipeline.h"

namespace fljsd {

// Losses and gradients as the pipeline rounds them; every number returned is the rounded value. Throws
// InvalidProblem as linear_jsd does, and the options mean what they mean there. Where a guarded pipeline's
// row has no distribution, the result is NaN as in linear_jsd.h; Pipeline::guarded tells what the others
// do. A published pipeline has no valid_vocab: the model is given the valid part of the vocabulary.
//
// Memory besides inputs and gradients asked for: about 40 bytes for each logit of a block of tokens, which
// is at most 64 tokens and 2^23 logits (one token, if the vocabulary is larger), 350 MiB, and for several
// pipelines another 256 MiB. The result does not depend on the number of threads.
Result run_pipeline(const Problem& problem, const Options& options, const Wanted& wanted,
                    const Pipeline& pipeline);

// The same for several pipelines, in their order. The products that give the logits, most of the work, are
// shared by all pipelines that sum them alike.
std::vector<Result> run_pipelines(const Problem& problem, const Options& options, const Wanted& wanted,
                                  std::span<const Pipeline> pipelines);

}  // namespace fljsd
