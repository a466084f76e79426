# SPDX-License-Identifier: Apache-2.0
"""The loss under the names and arguments of Liger-Kernel and TRL."""
from __future__ import annotations

import torch

from .function import fused_linear_jsd


class FusedLinearJSD(torch.nn.Module):
    """Takes the arguments of Liger-Kernel's LigerFusedLinearJSD. options: further ones of fused_linear_jsd.

    accum_dtype, there the dtype in which the weight gradient is summed, changes nothing: sums are fp32 at least.
    """

    def __init__(self, jsd_beta=0.5, ignore_index=-100, temperature=1.0, accum_dtype=None, **options):
        super().__init__()
        if accum_dtype not in (None, torch.float32, torch.bfloat16, torch.float16):
            raise ValueError(f"accum_dtype is {accum_dtype}, but it must be None or at most torch.float32.")
        self.jsd_beta, self.ignore_index, self.temperature = jsd_beta, ignore_index, temperature
        self.options = options

    def forward(self, student_input, student_weight, teacher_input, teacher_weight, shift_labels=None):
        return fused_linear_jsd(student_input, student_weight, teacher_input, teacher_weight, labels=shift_labels,
                                beta=self.jsd_beta, ignore_index=self.ignore_index, temperature=self.temperature,
                                **self.options)

    def extra_repr(self):
        return f"jsd_beta={self.jsd_beta}, ignore_index={self.ignore_index}, temperature={self.temperature}"


def generalized_jsd_loss(student_hidden, student_weight, teacher_hidden, teacher_weight, labels=None, beta=0.5,
                         temperature=1.0, reduction="batchmean", **options):
    """TRL's generalized_jsd_loss with hidden states [batch, sequence, hidden] and heads in place of logits.

    labels [batch, sequence] mark ignored positions by -100. As there, "batchmean" divides by the number of the other
    positions, and without labels by the batch size, whatever the sequence length; "sum" does not divide. Hidden states
    that are not packed are copied: pass them unshifted, and labels shifted instead.
    """
    if reduction not in ("batchmean", "sum"):
        raise ValueError(f"reduction is {reduction!r}, but it must be batchmean or sum.")
    flat = [x.reshape(-1, x.shape[-1]) for x in (student_hidden, teacher_hidden)]
    by_batch = reduction == "batchmean" and labels is None
    loss = fused_linear_jsd(flat[0], student_weight, flat[1], teacher_weight, beta=beta, temperature=temperature,
                            labels=None if labels is None else labels.reshape(-1),
                            reduction="sum" if by_batch else reduction, **options)
    return loss / student_hidden.shape[0] if by_batch else loss
