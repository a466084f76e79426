# SPDX-License-Identifier: Apache-2.0
"""A PyTorch implementation with fp32 logits. Runs on a GPU where there is one.

    ./fljsd fuzz --candidate "exec:python3 examples/torch_candidate.py"
"""
import math

import torch

import fljsd


def log_softmax(activations, weight, bias, temperature):
    logits = activations.float() @ weight.float().T
    if bias is not None:
        logits = logits + bias.float()
    return torch.log_softmax(logits / temperature, dim=-1)


def kl(log_a, log_b):
    gone = log_a == -math.inf  # 0 log 0 = 0; masked before anything is computed, so that no NaN enters the gradient
    log_a, log_b = log_a.masked_fill(gone, 0), log_b.masked_fill(gone, 0)
    terms = log_a.exp() * (log_a - log_b)
    return terms.masked_fill(log_b == -math.inf, math.inf).sum(dim=-1)  # even where exp underflows: 0 times inf is NaN


def jsd(log_p, log_q, beta):
    if beta == 0:
        return kl(log_p, log_q)
    if beta == 1:
        return kl(log_q, log_p)
    # logaddexp(-inf, -inf) has a NaN gradient; exp(-1e30) is as much 0 as exp(-inf).
    log_m = torch.logaddexp(log_p.clamp(min=-1e30) + math.log(beta), log_q.clamp(min=-1e30) + math.log1p(-beta))
    return beta * kl(log_p, log_m) + (1 - beta) * kl(log_q, log_m)


def candidate(case):
    t = case.torch()
    rows, v = t.counted, t.valid_vocab  # ignored tokens and padding take no part, so NaN in them does no harm

    def head(activations, weight, bias):
        return log_softmax(activations[rows], weight[:v], None if bias is None else bias[:v], t.temperature)

    log_p = head(t.teacher_input, t.teacher_weight, t.teacher_bias)
    log_q = head(t.student_input, t.student_weight, t.student_bias)
    token_loss = torch.zeros(t.tokens, device=t.device).masked_scatter(rows, jsd(log_p, log_q, t.beta))
    return t.answer(loss=token_loss.sum() / t.divisor, token_loss=token_loss)


if __name__ == "__main__":
    fljsd.serve(candidate, lacks=["f64"], strided=True)
