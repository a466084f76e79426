# SPDX-License-Identifier: Apache-2.0
"""PyTorch without a compiler, as the usual benchmark baseline of this loss has it, on bf16 models:

    bf16 logits, bf16 log-softmax; then float32: exp, the mixture by lerp, its log, two KL divergences, the mean; the
    loss back in bf16.

Lacks a padded vocabulary and other formats than bf16. Runs on the CPU, or on a GPU where there is one.

    ./fljsd fuzz --candidate "exec:python3 verify/peers/torch_eager.py"
"""
from torch_parts import kl, log_probabilities, reduce, serve, torch


def float_log_probabilities(student, teacher, temperature):
    """log q and log p as float32. `student` and `teacher` are (activations, weight, bias)."""
    return log_probabilities(*student, temperature).float(), log_probabilities(*teacher, temperature).float()


def teacher_kl(student, teacher, temperature, beta):
    log_q, log_p = float_log_probabilities(student, teacher, temperature)
    return kl(log_p, log_q)


def student_kl(student, teacher, temperature, beta):
    log_q, log_p = float_log_probabilities(student, teacher, temperature)
    return kl(log_q, log_p)


def jsd(student, teacher, temperature, beta):
    log_q, log_p = float_log_probabilities(student, teacher, temperature)
    log_m = torch.lerp(log_q.exp(), log_p.exp(), beta).log()
    return beta * kl(log_p, log_m) + (1 - beta) * kl(log_q, log_m)


def divergence(beta):
    """The function for the losses per token: the published baseline has no endpoints, so they are the two KLs."""
    return {0: teacher_kl, 1: student_kl}.get(beta, jsd)


def pipeline(t):
    token_loss = divergence(t.beta)((t.student_input, t.student_weight, t.student_bias),
                                    (t.teacher_input, t.teacher_weight, t.teacher_bias), t.temperature, t.beta)
    token_loss, loss = reduce(token_loss, t.counted, t.reduction)
    return token_loss, loss.to(t.student_input.dtype)


if __name__ == "__main__":
    serve(pipeline)
