# SPDX-License-Identifier: Apache-2.0
"""A Triton kernel for the divergence of rows of fp32 logits and its gradient; the products around it are PyTorch's.

    ./fljsd fuzz --candidate "exec:python3 examples/triton_candidate.py"

Without a GPU the kernel runs in Triton's interpreter, on the CPU and slowly: set TRITON_INTERPRET=1.
"""
import torch
import triton
import triton.language as tl

import fljsd


@triton.jit
def log_sum_exp(row, vocab, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    top = -float("inf")
    for start in range(0, vocab, BLOCK):
        x = tl.load(row + start + columns, mask=start + columns < vocab, other=-float("inf"))
        top = tl.maximum(top, tl.max(x, axis=0))
    total = 0.0
    for start in range(0, vocab, BLOCK):
        x = tl.load(row + start + columns, mask=start + columns < vocab, other=-float("inf"))
        total += tl.sum(tl.exp(x - top), axis=0)
    return top, tl.log(total)


@triton.jit
def log_ratios(log_p, log_q, beta):
    """p, q, log(p/M) and log(q/M); 0 for the logarithms of what has probability 0, which 0 log 0 = 0 takes out."""
    top = tl.maximum(log_p, log_q)  # p and q may both underflow where their ratio to M does not
    log_m = top + tl.log(beta * tl.exp(log_p - top) + (1 - beta) * tl.exp(log_q - top))
    p_over_m = tl.where(log_p == -float("inf"), 0.0, log_p - log_m)
    q_over_m = tl.where(log_q == -float("inf"), 0.0, log_q - log_m)
    return tl.exp(log_p), tl.exp(log_q), p_over_m, q_over_m


@triton.jit
def jsd_rows(student, teacher, loss, slope, beta, vocab, BLOCK: tl.constexpr):
    """One program a token. student, teacher [tokens, vocab]: logits; loss [tokens]; slope [tokens, vocab]: d loss/d student."""
    token = tl.program_id(0).to(tl.int64)
    student += token * vocab
    teacher += token * vocab
    slope += token * vocab
    columns = tl.arange(0, BLOCK)
    student_top, student_log_sum = log_sum_exp(student, vocab, BLOCK)
    teacher_top, teacher_log_sum = log_sum_exp(teacher, vocab, BLOCK)
    teacher_kl = 0.0
    student_kl = 0.0
    for start in range(0, vocab, BLOCK):
        inside = start + columns < vocab
        x = tl.load(student + start + columns, mask=inside, other=-float("inf"))
        y = tl.load(teacher + start + columns, mask=inside, other=-float("inf"))
        p, q, p_over_m, q_over_m = log_ratios(y - teacher_top - teacher_log_sum, x - student_top - student_log_sum, beta)
        teacher_kl += tl.sum(p * p_over_m, axis=0)
        student_kl += tl.sum(q * q_over_m, axis=0)
    tl.store(loss + token, beta * teacher_kl + (1 - beta) * student_kl)
    for start in range(0, vocab, BLOCK):
        inside = start + columns < vocab
        x = tl.load(student + start + columns, mask=inside, other=-float("inf"))
        y = tl.load(teacher + start + columns, mask=inside, other=-float("inf"))
        p, q, p_over_m, q_over_m = log_ratios(y - teacher_top - teacher_log_sum, x - student_top - student_log_sum, beta)
        tl.store(slope + start + columns, (1 - beta) * q * (q_over_m - student_kl), mask=inside)


def candidate(case):
    t = case.torch()
    rows, v = t.counted, t.valid_vocab

    def logits(activations, weight, bias):
        logits = activations[rows].float() @ weight[:v].float().T
        return ((logits if bias is None else logits + bias[:v].float()) / t.temperature).contiguous()

    with torch.no_grad():
        student = logits(t.student_input, t.student_weight, t.student_bias)
        teacher = logits(t.teacher_input, t.teacher_weight, t.teacher_bias)
        loss, slope = torch.empty_like(student[:, 0]), torch.empty_like(student)
        if len(loss):
            jsd_rows[(len(loss),)](student, teacher, loss, slope, t.beta, v, BLOCK=min(4096, triton.next_power_of_2(v)))
        slope /= t.temperature * t.divisor

        token_loss = torch.zeros(t.tokens, device=t.device)
        token_loss[rows] = loss
        input_grad = torch.zeros_like(t.student_input, dtype=torch.float32)
        input_grad[rows] = slope @ t.student_weight[:v].float()
        weight_grad = torch.zeros_like(t.student_weight, dtype=torch.float32)
        weight_grad[:v] = slope.T @ t.student_input[rows].float()
        bias_grad = torch.zeros(t.vocab, device=t.device)
        bias_grad[:v] = slope.sum(dim=0)
    return {"loss": loss.sum() / t.divisor, "token_loss": token_loss, "student_input_grad": input_grad,
            "student_weight_grad": weight_grad, "student_bias_grad": bias_grad}


if __name__ == "__main__":
    fljsd.serve(candidate, lacks=["beta_endpoints", "f64"])
