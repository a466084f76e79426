# SPDX-License-Identifier: Apache-2.0
"""A complete implementation in NumPy, and the four lines that make it a candidate.

    pip install ./verify/python
    ./fljsd fuzz --candidate "exec:python3 examples/numpy_candidate.py"
"""
import numpy as np

import fljsd


def log_softmax(x):
    x = x - x.max(axis=1, keepdims=True)  # NaN for a row without a finite maximum, which has no distribution
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def terms(log_a, log_b):
    """a (log a - log b): 0 for a = 0, and infinite for b = 0 even if a underflows."""
    return np.where(log_a == -np.inf, 0, np.where(log_b == -np.inf, np.inf, np.exp(log_a) * (log_a - log_b)))


def jsd(log_p, log_q, beta):
    """The divergence [tokens] and its gradient with respect to the student's logits [tokens, vocab]."""
    p, q = np.exp(log_p), np.exp(log_q)
    if beta == 0:
        return terms(log_p, log_q).sum(axis=1), q - p
    log_m = log_p if beta == 1 else np.logaddexp(log_p + np.log(beta), log_q + np.log1p(-beta))
    log_m = np.where(log_p == log_q, log_p, log_m)  # exactly, so that equal distributions give exactly 0
    student = terms(log_q, log_m)  # of KL(q || M)
    kl = student.sum(axis=1, keepdims=True)
    if beta == 1:
        return kl[:, 0], student - q * kl
    divergence = beta * terms(log_p, log_m).sum(axis=1) + (1 - beta) * kl[:, 0]
    return divergence, (1 - beta) * (student - q * kl)


def linear_jsd(case):
    rows, v = case.counted, case.valid_vocab  # ignored tokens and padding do not exist
    x, w = case.student_input[rows].astype(np.float64), case.student_weight[:v].astype(np.float64)
    student = x @ w.T
    teacher = case.teacher_input[rows].astype(np.float64) @ case.teacher_weight[:v].astype(np.float64).T
    if case.student_bias is not None:
        student = student + case.student_bias[:v]
    if case.teacher_bias is not None:
        teacher = teacher + case.teacher_bias[:v]
    divergence, slope = jsd(log_softmax(teacher / case.temperature), log_softmax(student / case.temperature), case.beta)
    slope = slope / case.temperature / case.divisor

    token_loss = np.zeros(case.tokens)
    token_loss[rows] = divergence
    input_grad = np.zeros(case.student_input.shape)
    input_grad[rows] = slope @ w
    weight_grad, bias_grad = np.zeros(case.student_weight.shape), np.zeros(case.vocab)
    weight_grad[:v], bias_grad[:v] = slope.T @ x, slope.sum(axis=0)
    return {"loss": divergence.sum() / case.divisor, "token_loss": token_loss, "student_input_grad": input_grad,
            "student_weight_grad": weight_grad, "student_bias_grad": bias_grad}


if __name__ == "__main__":
    np.seterr(all="ignore")  # infinities and NaN are part of the problem
    fljsd.serve(linear_jsd, accuracy_class="float64", deterministic=True, strided=True)
