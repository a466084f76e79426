# SPDX-License-Identifier: Apache-2.0
"""The form of the loss in TRL's trainers for generalized knowledge distillation, on bf16 models: everything in the format
of the logits, the mixture by logsumexp of the two log-softmaxes.

Lacks a padded vocabulary and other formats than bf16. Needs PyTorch, not TRL: the formula is restated here.

    ./fljsd fuzz --candidate "exec:python3 verify/peers/trl_form.py"
"""
import math

from torch_parts import kl, log_probabilities, reduce, serve, torch


def pipeline(t):
    log_q = log_probabilities(t.student_input, t.student_weight, t.student_bias, t.temperature)
    log_p = log_probabilities(t.teacher_input, t.teacher_weight, t.teacher_bias, t.temperature)
    if t.beta == 0:
        token_loss = kl(log_p, log_q)
    elif t.beta == 1:
        token_loss = kl(log_q, log_p)
    else:
        log_m = torch.logsumexp(torch.stack([log_q + math.log1p(-t.beta), log_p + math.log(t.beta)]), dim=0)
        token_loss = t.beta * kl(log_p, log_m) + (1 - t.beta) * kl(log_q, log_m)
    return reduce(token_loss, t.counted, t.reduction)


if __name__ == "__main__":
    serve(pipeline)
