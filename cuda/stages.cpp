// SPDX-License-Identifier: Apache-2.0
#include "cuda/stage.h"

#include "cuda/failure.h"

namespace fljsd::cuda {

std::span<const StageEntry> stages() {
  static constexpr StageEntry table[] = {
      {"gemm",
       "Only the matrix products, with logits in the inputs' format: the time that everything is compared "
       "with.",
       true, FLJSD_BF16, 80, any_newer, make_gemm_stage},
      {"hopper-gemm", "The same products by a kernel of our own for Hopper: no loss.", true, FLJSD_BF16, 90,
       90, make_hopper_gemm},
      {"hopper-log-sum-exp",
       "That kernel with a log-sum-exp of every row in the place of logits: no loss; token_loss is the "
       "student's minus the teacher's.",
       true, FLJSD_F32, 90, 90, make_hopper_log_sum_exp},
      {"unfused", "All logits in fp32, then a row kernel: exact, simple, and large.", false, FLJSD_F32, 80,
       any_newer, make_unfused},
      {"unfused-bf16-logits", "The same with logits rounded to bf16, as published implementations keep them.",
       false, FLJSD_BF16, 80, any_newer, make_unfused_bf16_logits},
      {"chunked-tokens", "A chunk of tokens at a time, as many as the memory budget allows; exact.", false,
       FLJSD_F32, 80, any_newer, make_chunked_tokens},
      {"chunked-vocab",
       "A tile of the vocabulary at a time, folded into one-pass statistics; the least memory.", false,
       FLJSD_F32, 80, any_newer, make_chunked_vocab},
      {"fused",
       "Both projections and the one-pass statistics in one kernel, no logits in memory (Hopper; elsewhere "
       "chunked-vocab serves).",
       false, FLJSD_F32, 80, any_newer, make_fused},
      {"fused-two-pass",
       "The fused kernel twice, losses by their definition: what the one pass is compared with (Hopper; "
       "elsewhere chunked-tokens serves).",
       false, FLJSD_F32, 80, any_newer, make_fused_two_pass},
  };
  return table;
}

const StageEntry& find_stage(const std::string& name) {
  std::string known;
  for (const StageEntry& entry : stages()) {
    if (name == entry.name) return entry;
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  fail(FLJSD_INVALID_ARGUMENT, "stage is '", name, "', but it must be one of ", known, ".");
}

void require_device(const StageEntry& stage, const Device& device) {
  if (device.capability >= stage.minimum_capability && device.capability <= stage.maximum_capability) return;
  fail(FLJSD_UNSUPPORTED, "Stage ", stage.name, " needs compute capability ", stage.minimum_capability / 10,
       ".", stage.minimum_capability % 10, stage.maximum_capability == any_newer ? " or higher" : "",
       ", but device ", device.ordinal, " (", device.name, ") has ", device.capability / 10, ".",
       device.capability % 10, ".");
}

}  // namespace fljsd::cuda
